import asyncio
from urllib.parse import urlencode

import msgspec
import pytest

import builders
from fakes.cluster import FakeState
from metricsapi.scene import Scene as MetricsScene
from reports.values import gpu, node
from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod, ReportedUsage
from slicewise.httpd import Stream
from slicewise.kube.errors import LostError, RefusedError
from slicewise.reports import ContainerReport, DeviceReport, MeasuredUse, PodReport
from slicewise.reports.listing import LIST_PATH


def agent_path(name):
    return f"/api/v1/nodes/{name}:5678/proxy/usage/gpus"


class FakeClient:
    """Answers by path; whatever it has no answer for it refuses."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def read_once(self, call, *, seconds=None):
        query = f"?{urlencode(call.query)}" if call.query else ""
        self.asked.append(call.path + query)
        answer = self.answers.get(call.path)
        if answer is None:
            raise RefusedError(404, "NotFound", "nobody there")
        if isinstance(answer, Exception):
            raise answer
        return await answer(call) if callable(answer) else msgspec.json.encode(answer)


class Scene:
    """A page's source of use over a cluster, with a clock of its own."""

    def __init__(self, *nodes):
        self.state = FakeState(*(nodes or (builders.node("n0"),)))
        self.client = FakeClient()
        self.now = 0.0
        self.usage = ReportedUsage(self.client, self.state, clock=lambda: self.now)

    def read(self):
        return asyncio.run(self.usage.read())

    def asked(self):
        """Which agents were asked since the last time."""
        asked, self.client.asked = self.client.asked, []
        return [path for path in asked if not path.startswith(LIST_PATH)]

    def serve(self, metrics):
        """Let this metrics API answer the list."""

        async def answer(call):
            found = await metrics.ask(call.path, **call.query)
            if isinstance(found, Stream):
                return b"".join([chunk async for chunk in found.chunks])
            return found.body

        self.client.answers[LIST_PATH] = answer


def report(name="n0", cores=55, **facts):
    """A node of whose first GPU this much is used."""
    used = gpu(f"GPU-{name}-0", use=MeasuredUse(memory_mib=900, cores=cores))
    return node(name, gpus=(used,), **facts)


def pod_report(uid, *containers):
    """Containers that each use 20 percent and 512 MiB of the second GPU."""
    devices = (DeviceReport(gpu="GPU-n0-1", use=MeasuredUse(memory_mib=512, cores=20)),)
    told = tuple(ContainerReport(name=name, devices=devices) for name in containers)
    return PodReport(namespace="ml", name=uid, uid=uid, containers=told)


def fill(scene):
    """One pod that the ledger knows, and what its agent reports."""
    limits = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    scene.state.see(builders.pod(limits=limits, node="n0", uid="u1", namespace="ml", name="p"))
    gpus = (
        gpu("GPU-n0-1", index=1, use=MeasuredUse(memory_mib=900, cores=55)),
        gpu("GPU-n0-7", index=7),
    )
    return node("n0", gpus=gpus, pods=[pod_report("u1", "a", "b"), pod_report("stranger", "c")])


FILLED = {
    "n0": MeasuredNode(
        (MeasuredGpu("GPU-n0-1", 55, 900),), (MeasuredPod("ml/p", "GPU-n0-1", 40, 1024),)
    )
}


def test_what_the_metrics_api_has_is_told_by_gpu_and_pod_and_no_agent_is_asked():
    scene, metrics = Scene(), MetricsScene()
    scene.serve(metrics)
    metrics.tell(fill(scene))

    assert scene.read() == FILLED
    assert scene.asked() == []


def test_no_agent_is_asked_through_the_api_server_where_no_metrics_api_runs():
    scene = Scene()
    scene.client.answers[agent_path("n0")] = fill(scene)

    assert scene.read() == {}
    assert scene.asked() == []


def test_figures_of_5000_nodes_are_seconds_old_and_come_in_one_request():
    names = [f"n{at:04}" for at in range(5000)]
    scene, metrics = Scene(*(builders.node(name, 1) for name in names)), MetricsScene()
    scene.serve(metrics)
    sessions = [metrics.tell(report(name, cores=10, sampled_at=0.0)) for name in names]
    assert len(scene.read()) == 5000

    # Five seconds later every agent has measured something else.
    scene.now = metrics.seconds = 5.0
    for name, session in zip(names, sessions, strict=True):
        session.replace(report(name, cores=70, sampled_at=4.0))
    scene.client.asked.clear()
    found = scene.read()

    assert len(scene.client.asked) == 1
    assert set(found) == set(names)
    assert {each.gpus[0].cores for each in found.values()} == {70}
    assert max(scene.now - each.sampled_at for each in found.values()) <= 1.0


def test_second_request_brings_only_what_changed():
    scene, metrics = Scene(builders.node("n0"), builders.node("n1")), MetricsScene()
    scene.serve(metrics)
    metrics.tell(report("n0", cores=10))
    session = metrics.tell(report("n1", cores=10))
    scene.read()
    session.replace(report("n1", cores=30))
    sizes = []
    answer = scene.client.answers[LIST_PATH]

    async def weigh(call):
        body = await answer(call)
        sizes.append(len(msgspec.json.decode(body)["items"]))
        return body

    scene.client.answers[LIST_PATH] = weigh
    found = scene.read()

    assert sizes == [1]
    assert [found[name].gpus[0].cores for name in ("n0", "n1")] == [10, 30]


def test_restarted_metrics_api_is_read_from_the_beginning():
    scene = Scene(builders.node("n0"), builders.node("n1"))
    for names in (("n0", "n1"), ("n1",)):
        metrics = MetricsScene()
        scene.serve(metrics)
        for name in names:
            metrics.tell(report(name))
        found = scene.read()

    assert set(found) == {"n1"}


def test_deleted_node_is_dropped():
    scene, metrics = Scene(builders.node("n0"), builders.node("n1")), MetricsScene()
    scene.serve(metrics)
    for name in ("n0", "n1"):
        metrics.tell(report(name))
    assert set(scene.read()) == {"n0", "n1"}
    metrics.registry.forget("n0")

    assert set(scene.read()) == {"n1"}


def test_silent_agent_is_told_without_figures_until_it_is_heard():
    scene, metrics = Scene(), MetricsScene()
    scene.serve(metrics)
    session = metrics.tell(report("n0", sampled_at=1.0))
    metrics.seconds = 10.0
    metrics.registry.sweep()

    assert scene.read() == {"n0": MeasuredNode(silent=True, sampled_at=1.0)}

    session.heartbeat()
    assert scene.read()["n0"].gpus == (MeasuredGpu("GPU-n0-0", 55, 900),)


@pytest.mark.parametrize("code", [403, 404, 503])
def test_absent_metrics_api_is_tried_again_after_a_while(code):
    scene, metrics = Scene(), MetricsScene()
    scene.client.answers[LIST_PATH] = RefusedError(code, "Refused", "")
    assert scene.read() == {}

    scene.serve(metrics)
    metrics.tell(report("n0", cores=80))
    scene.now = 5.0
    assert scene.read() == {}
    scene.now = 11.0
    assert scene.read()["n0"].gpus[0].cores == 80


def test_figures_stay_while_the_metrics_api_restarts_and_go_when_it_stays_away():
    scene, metrics = Scene(), MetricsScene()
    scene.serve(metrics)
    metrics.tell(report("n0", cores=80))
    scene.read()
    scene.client.answers[LIST_PATH] = RefusedError(503, "ServiceUnavailable", "")

    scene.now = 10.0
    assert scene.read()["n0"].gpus[0].cores == 80
    assert scene.asked() == []
    scene.now = 40.0
    assert scene.read() == {}


@pytest.mark.parametrize("broken", [LostError("gone"), {"items": 5}, "text"])
def test_lost_answer_keeps_the_figures_for_a_while_and_asks_no_agent(broken):
    scene, metrics = Scene(), MetricsScene()
    scene.serve(metrics)
    metrics.tell(report("n0"))
    scene.read()
    scene.client.answers[LIST_PATH] = broken

    scene.now = 10.0
    assert set(scene.read()) == {"n0"}
    scene.now = 60.0
    assert scene.read() == {}
    assert scene.asked() == []


def test_only_nodes_of_the_cluster_are_told():
    scene, metrics = Scene(builders.node("n0")), MetricsScene()
    scene.serve(metrics)
    for name in ("n0", "elsewhere"):
        metrics.tell(report(name))

    assert set(scene.read()) == {"n0"}


def test_nothing_is_asked_before_the_cluster_is_known():
    scene = Scene()
    scene.state.ready = False

    assert scene.read() == {}
    assert scene.client.asked == []
