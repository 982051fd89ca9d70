from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from nodeagent import scenes
from slicewise.diagnose.audit import audit
from slicewise.diagnose.audit_report import (
    AuditKind,
    AuditReport,
    AuditVerdict,
    audit_finding,
    confirm,
)
from slicewise.diagnose.evidence import Evidence, SpecFile, UnitHolder
from slicewise.model import Slice
from slicewise.nodeagent.audit.auditor import build_evidence
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nodeagent.plugin.cdi import name_units
from slicewise.nodeagent.usage.cgroups import CgroupRef
from slicewise.nodeagent.usage.node_usage import measure

GPUS = (scenes.device(0), scenes.device(1))
CORES = "slicewise.io/cores"
WHOLE = builders.piece(0, 100, 40960)


def grant(pod: NodePod, container: str = "c0", start: int = 0, **facts) -> UnitHolder:
    units = {CORES: frozenset(f"{CORES}-{start + at}" for at in range(30))}
    return UnitHolder(pod.namespace, pod.name, container, facts.get("units", units))


def spec(pod: NodePod, holder: UnitHolder, *gpus: str) -> SpecFile:
    """The spec of the units that a container of the pod holds."""
    name = name_units(CORES, holder.units[CORES])
    return SpecFile(name, pod.uid, holder.container, frozenset(gpus) or None)


def gather(
    *pods: NodePod,
    holders: list[UnitHolder] | None = None,
    specs: list[SpecFile] | None = None,
    gpus=GPUS,
    loads=None,
    seen=None,
    gaps: tuple[str, ...] = (),
) -> Evidence:
    """Evidence in which everything fits together, but for what the test says otherwise."""
    if holders is None:
        holders = [
            grant(each, container.name, 1000 * at + 100 * number)
            for at, each in enumerate(pods)
            for number, container in enumerate(each.containers)
            if each.held(container.name)
        ]
    if specs is None:
        named = {each.full_name: each for each in pods}
        specs = [
            spec(
                named[pod], each, *(f"GPU-{piece.gpu}" for piece in named[pod].held(each.container))
            )
            for each in holders
            if (pod := f"{each.namespace}/{each.pod}") in named and CORES in each.units
        ]
    loads = loads or {device.gpu.uuid: scenes.load() for device in gpus}
    usage = measure("n0", gpus, pods, scenes.reading(loads, seen))
    return build_evidence(
        usage,
        pods,
        holders,
        specs=tuple(specs),
        resources=frozenset({CORES}),
        served=frozenset({CORES}),
        gaps=gaps,
    )


def find(evidence: Evidence) -> list[tuple[AuditKind, str]]:
    findings = audit(evidence).findings
    assert all(each.what and each.fix for each in findings)
    return [(each.topic, each.subject) for each in findings]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[NodePod, ...]:
    """Pods that share two GPUs without taking more than there is."""
    count = draw(st.integers(0, 6))
    return tuple(
        scenes.node_pod(
            f"p{at}",
            {
                f"c{number}": [
                    builders.piece(gpu, 5, 100)
                    for gpu in sorted(draw(st.sets(st.integers(0, 1), max_size=2)))
                ]
                for number in range(draw(st.integers(1, 3)))
            },
        )
        for at in range(count)
    )


@given(worlds())
def test_where_all_views_agree_nothing_is_found(pods):
    report = audit(gather(*pods))

    assert report.findings == ()
    assert report.verdict is AuditVerdict.CLEAN


@given(worlds(), st.data())
def test_forgetting_any_spec_or_grant_is_noticed(pods, data):
    evidence = gather(*pods)
    if not evidence.specs:
        return
    lost = data.draw(st.sampled_from(evidence.specs))
    kept = tuple(each for each in evidence.specs if each is not lost)
    (found,) = audit(replace(evidence, specs=kept)).findings
    given_up = data.draw(st.sampled_from(evidence.holders))
    held = tuple(each for each in evidence.holders if each is not given_up)
    (missed,) = audit(replace(evidence, holders=held)).findings

    assert found.topic is AuditKind.MISSING_SPEC
    assert found.subject.endswith(f"/{lost.container}")
    assert CORES in found.what
    assert missed.topic is AuditKind.MISSING_GRANT
    assert missed.subject == f"{given_up.namespace}/{given_up.pod}/{given_up.container}"


def test_a_whole_gpu_held_twice_is_a_double_grant():
    evidence = gather(scenes.node_pod("a", {"c0": [WHOLE]}), scenes.node_pod("b"))

    assert find(evidence) == [(AuditKind.DOUBLE_GRANT, "gpu 0 (GPU-0)")]


def test_a_gpu_allocated_beyond_its_memory_is_over_committed():
    big = builders.piece(0, 10, 30000)
    evidence = gather(scenes.node_pod("a", {"c0": [big]}), scenes.node_pod("b", {"c0": [big]}))

    (finding,) = audit(evidence).findings
    assert finding.topic is AuditKind.OVER_COMMIT
    assert "60000 of 40960 MiB" in finding.what
    assert "ml/a, ml/b" in finding.what


def test_init_containers_do_not_over_commit_what_follows_them():
    held = {"prepare": [builders.piece(0, 60, 100)], "c0": [builders.piece(0, 60, 100)]}
    containers = [scenes.container("prepare", role=scenes.INIT), scenes.container("c0")]
    pod = scenes.node_pod("a", held, containers=containers)

    assert find(gather(pod)) == []


def test_an_unhealthy_gpu_in_use_is_found_and_an_idle_one_is_not():
    unhealthy = [
        replace(each, gpu=replace(each.gpu, healthy=False), trouble="lost") for each in GPUS
    ]
    report = audit(gather(scenes.node_pod("a"), gpus=unhealthy))

    assert [each.subject for each in report.findings] == ["gpu 0 (GPU-0)"]
    assert report.findings[0].what == "it is lost and held by ml/a"


def test_an_allocation_of_a_gpu_that_is_gone_is_found():
    evidence = gather(scenes.node_pod("a", {"c0": [builders.piece(7)]}), specs=[])

    assert (AuditKind.UNKNOWN_GPU, "ml/a") in find(evidence)


def test_a_pod_without_a_record_is_found_once():
    pod = scenes.node_pod("a", {"c0": []}, trouble="it asks for GPUs and records no allocation")

    assert find(gather(pod, holders=[grant(pod)])) == [(AuditKind.MISSING_ALLOCATION, "ml/a")]


def test_units_held_for_a_pod_that_is_gone_leak():
    evidence = gather(holders=[grant(scenes.node_pod("gone"))])

    assert find(evidence) == [(AuditKind.KUBELET_LEAK, "ml/gone/c0")]


def test_units_of_other_plugins_are_not_ours_to_judge():
    other = grant(scenes.node_pod("gone"), units={"vendor.com/nic": frozenset({"eth0"})})

    assert find(gather(holders=[other])) == []


def test_units_without_an_allocation_are_found():
    plain = scenes.node_pod("a", {"c0": []}, asks=False)

    assert find(gather(plain, holders=[grant(plain)])) == [(AuditKind.UNPROMISED_GRANT, "ml/a/c0")]


def test_units_given_to_two_containers_are_a_double_grant():
    one, other = scenes.node_pod("a"), scenes.node_pod("b")
    evidence = gather(one, other, holders=[grant(one), grant(other, start=25)])

    (finding,) = audit(evidence).findings
    assert (finding.topic, finding.subject) == (AuditKind.DOUBLE_GRANT, "ml/a/c0, ml/b/c0")
    assert "5 units" in finding.what


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"running": False}, id="not-started"),
        pytest.param({"ended": True, "running": False}, id="ended"),
        pytest.param({"role": scenes.INIT}, id="init"),
    ],
)
def test_only_running_containers_must_have_units_and_specs(facts):
    pod = scenes.node_pod("a", containers=[scenes.container("c0", **facts)])

    assert find(gather(pod, holders=[], specs=[])) == []


def test_a_spec_that_hands_over_another_gpu_is_found():
    pod = scenes.node_pod("a")
    report = audit(gather(pod, specs=[spec(pod, grant(pod), "GPU-1")]))

    (finding,) = report.findings
    assert (finding.topic, finding.subject) == (AuditKind.WRONG_SPEC, "ml/a/c0")
    assert "GPU-1" in finding.what
    assert "GPU-0" in finding.what


def test_a_spec_that_hands_over_no_gpu_is_no_wrong_gpu():
    pod = scenes.node_pod("a")

    assert find(gather(pod, specs=[spec(pod, grant(pod))])) == []


def test_specs_of_gone_pods_and_broken_files_are_found():
    gone = SpecFile("old", "uid-gone", "c0", frozenset({"GPU-0"}))
    broken = SpecFile("half", trouble="it ends in the middle")

    assert find(gather(specs=[gone, broken])) == [
        (AuditKind.BROKEN_SPEC, "half"),
        (AuditKind.LEFTOVER_SPEC, "old"),
    ]


def test_specs_of_pods_that_just_left_are_not_due_yet():
    gone = SpecFile("old", "uid-gone", "c0", frozenset({"GPU-0"}))
    evidence = replace(gather(specs=[gone]), departed=frozenset({"uid-gone"}))

    assert find(evidence) == []


def test_containers_of_other_plugins_need_no_spec():
    evidence = gather(scenes.node_pod("a"), specs=[])

    assert find(evidence) == [(AuditKind.MISSING_SPEC, "ml/a/c0")]
    assert find(replace(evidence, served=frozenset())) == []


def test_processes_of_nobody_are_strays():
    loads = {"GPU-0": scenes.load(scenes.process(7), scenes.process(8), scenes.process(9))}
    report = audit(gather(loads=loads, seen={7: [], 8: [CgroupRef("gone-uid", "x")]}))

    assert [(each.topic, each.subject) for each in report.findings] == [
        (AuditKind.STRAY, "pid 7 on gpu 0 (GPU-0)"),
        (AuditKind.STRAY, "pid 8 on gpu 0 (GPU-0)"),
        (AuditKind.STRAY, "pid 9 on gpu 0 (GPU-0)"),
    ]
    assert "gone-uid" in report.findings[1].what
    assert "hostPID" in report.findings[2].fix


def test_a_trespass_and_overuse_name_the_container():
    pod = scenes.node_pod("a")
    loads = {
        "GPU-0": scenes.load(scenes.process(7, memory=5000)),
        "GPU-1": scenes.load(scenes.process(8)),
    }
    seen = {pid: [scenes.inside(pod)] for pid in (7, 8)}

    assert find(gather(pod, loads=loads, seen=seen)) == [
        (AuditKind.TRESPASS, "ml/a/c0 on gpu 1 (GPU-1)"),
        (AuditKind.OVERUSE, "ml/a/c0 on gpu 0 (GPU-0)"),
    ]


def test_a_container_allocated_no_amount_cannot_overuse_it():
    pod = scenes.node_pod("a", {"c0": [builders.piece(0, 30, 0)]})
    loads = {"GPU-0": scenes.load(scenes.process(7, memory=5000))}

    assert find(gather(pod, loads=loads, seen={7: [scenes.inside(pod)]})) == []


def test_views_that_nobody_gave_are_not_compared():
    evidence = replace(
        gather(scenes.node_pod("a")), holders=None, specs=None, gaps=("the kubelet",)
    )
    report = audit(evidence)

    assert report.findings == ()
    assert report.verdict is AuditVerdict.UNKNOWN


def test_findings_outweigh_gaps():
    report = audit(gather(specs=[SpecFile("x", trouble="cut")], gaps=("the kubelet",)))

    assert report.verdict is AuditVerdict.FINDINGS


def test_the_gravest_findings_come_first():
    pods = [scenes.node_pod(name, {"c0": [WHOLE]}) for name in ("a", "b")]
    broken = SpecFile("x", trouble="cut")
    specs = [*gather(*pods).specs, broken]
    kinds = [kind for kind, _ in find(gather(*pods, specs=specs))]

    assert kinds == [AuditKind.DOUBLE_GRANT, AuditKind.BROKEN_SPEC]


def test_only_what_stays_wrong_is_confirmed():
    stays = audit_finding(AuditKind.STRAY, "pid 7", "1 MiB", "end it")
    grown = replace(stays, what="2 MiB")
    passing = audit_finding(AuditKind.MISSING_GRANT, "ml/a/c0", "none", "wait")
    new = audit_finding(AuditKind.MISSING_SPEC, "ml/b/c0", "none", "wait")
    report = confirm(AuditReport("n0", (passing, stays)), AuditReport("n0", (new, grown)))

    assert report == AuditReport("n0", (grown,))


def test_slices_of_one_pod_on_one_gpu_do_not_double_grant_it():
    pieces = {"a": [Slice(0, 50, 100)], "b": [Slice(0, 50, 100)]}

    assert find(gather(scenes.node_pod("a", pieces))) == []
