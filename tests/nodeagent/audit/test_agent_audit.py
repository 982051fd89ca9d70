"""Audits of a whole agent, between an embedded API and a kubelet without containers."""

import json

import pytest

from nodeagent import scenes
from nodeagent.living import Scene, live
from slicewise.diagnose.audit_report import AuditKind, AuditReport, AuditVerdict
from slicewise.nodeagent.audit.auditor import Auditor, collect_from
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageSampler

FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
OWN = {"slicewise.io/cores": 20, "slicewise.io/memory": 256}
SHARE = {"aliyun.com/gpu-mem": 1}
ELASTIC = {"elasticgpu.io/gpu-core": 20}
WHOLE = {"nvidia.com/gpu": 1}


def find_pod(scene: Scene, pod):
    """The pod with what it was allocated, if the agent knows it."""
    return next((each for each in scene.agent.pods.pods() if each.uid == pod.uid), None)


async def run_pod(scene: Scene, limits: dict, *indexes: tuple[int, ...]):
    """A pod whose containers were started and say so."""
    pod = scene.place(limits, *indexes)
    await scene.kubelet.admit(pod)
    statuses = []
    for each in pod.containers:
        await scene.start(pod, each.name)
        statuses.append(
            {
                "name": each.name,
                "containerID": f"containerd://{each.name}",
                "state": {"running": {}},
            }
        )
    status = {"status": {"phase": "Running", "containerStatuses": statuses}}
    scene.playground.patch("pods", pod.name, status, status=True)

    def told() -> bool:
        found = find_pod(scene, pod)
        return found is not None and all(each.running for each in found.containers)

    await scene.until(told)
    return pod


async def look(scene: Scene) -> AuditReport:
    sampler = UsageSampler(scenes.FakeDriver(), ProcessTable(scene.root / "proc"))
    holders = scene.agent._edges.holders
    views = collect_from(scene.agent, holders, sampler)
    return await Auditor(views.collect, pause_seconds=0).audit()


def first_spec(scene: Scene):
    """A spec that hands over a GPU."""
    return next(
        path for path in sorted(scene.cdi.glob("*.json")) if "/dev/nvidia" in path.read_text()
    )


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(FORK, id="tkestack"),
        pytest.param(OWN, id="slicewise"),
        pytest.param(SHARE, id="gpushare"),
        pytest.param(ELASTIC, id="elastic"),
        pytest.param(WHOLE, id="nvidia"),
    ],
)
def test_a_node_that_runs_as_allocated_is_clean(tmp_path, limits):
    async def act(scene):
        async with scene.running():
            await run_pod(scene, limits, (3,))
            return await look(scene)

    report = live(tmp_path, act)

    assert report.findings == ()
    assert report.verdict is AuditVerdict.CLEAN


def test_a_spec_changed_by_hand_is_found(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = await run_pod(scene, OWN, (0,))
            path = first_spec(scene)
            path.write_text(path.read_text().replace("nvidia3", "nvidia2"))
            return pod, await look(scene)

    pod, report = live(tmp_path, act)

    (finding,) = report.findings
    assert (finding.topic, finding.subject) == (AuditKind.WRONG_SPEC, f"default/{pod.name}/c0")
    assert "GPU-1" in finding.what


def test_a_spec_removed_or_cut_short_is_found(tmp_path):
    async def act(scene):
        async with scene.running():
            await run_pod(scene, OWN, (0,))
            path = first_spec(scene)
            content = path.read_bytes()
            path.write_bytes(content[:50])
            cut = await look(scene)
            path.unlink()
            return cut, await look(scene)

    cut, gone = live(tmp_path, act, sweep_seconds=3600)

    assert [each.topic for each in cut.findings] == [AuditKind.BROKEN_SPEC]
    assert [each.topic for each in gone.findings] == [AuditKind.MISSING_SPEC]


def test_units_the_kubelet_kept_for_a_deleted_pod_leak(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = await run_pod(scene, OWN, (0,))
            scene.playground.delete("pods", pod.name, grace=0)
            await scene.until(lambda: find_pod(scene, pod) is None)
            kept = await look(scene)
            scene.kubelet.remove(pod)
            return pod, kept, await look(scene)

    pod, kept, released = live(tmp_path, act)

    assert [(each.topic, each.subject) for each in kept.findings] == [
        (AuditKind.KUBELET_LEAK, f"default/{pod.name}/c0")
    ]
    assert released.verdict is AuditVerdict.CLEAN


def test_a_record_moved_to_another_gpu_after_the_start_is_found(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = await run_pod(scene, OWN, (0,))
            key = "slicewise.io/allocation"
            record = json.loads(scene.get(pod)["metadata"]["annotations"][key])
            record["containers"]["c0"][0][:2] = [1, "GPU-1"]
            marks = {"annotations": {key: json.dumps(record)}}
            scene.playground.patch("pods", pod.name, {"metadata": marks})
            await scene.until(lambda: find_pod(scene, pod).trouble is not None)
            return await look(scene)

    (finding,) = live(tmp_path, act).findings
    assert finding.topic == AuditKind.FORGED_RECORD
    assert "its record is not what was signed" in finding.what


def test_a_silent_kubelet_leaves_a_gap(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            agent._edges.holders._seconds = 0.1
            await scene.kubelet.stop()
            try:
                return await look(scene)
            finally:
                await scene.kubelet.start()

    report = live(tmp_path, act)

    assert report.verdict is AuditVerdict.UNKNOWN
    assert report.gaps[0].startswith("the kubelet: ")
