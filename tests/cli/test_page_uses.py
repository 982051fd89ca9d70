import asyncio

import msgspec
import pytest

import builders
from fakes.cluster import FakeState
from slicewise.dashboard.reported_usage import ReportedUsage
from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod
from slicewise.kube.errors import RefusedError

GPUINFOS = "/apis/metrics.nvidia.com/v1alpha1/gpuinfos"


def agent_path(node):
    return f"/api/v1/nodes/{node}:5678/proxy/usage/gpus"


class FakeClient:
    """Answers by path; whatever it has no answer for it refuses."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def read_once(self, call, *, seconds=None):
        self.asked.append(call.path)
        if call.path not in self.answers:
            raise RefusedError(503, "ServiceUnavailable", "nobody there")
        return msgspec.json.encode(self.answers[call.path])


class Scene:
    def __init__(self, *nodes):
        self.state = FakeState(*(nodes or (builders.node("n0"),)))
        self.client = FakeClient()
        self.now = 0.0
        self.uses = ReportedUsage(self.client, self.state, clock=lambda: self.now)

    def read(self):
        return asyncio.run(self.uses.read())

    def asked(self):
        asked, self.client.asked = self.client.asked, []
        return [path for path in asked if path != GPUINFOS]

    def silence(self, **health):
        self.client.answers[GPUINFOS] = {
            "items": [
                {"spec": {"device_node": node}, "status": {"node_health": word}}
                for node, word in health.items()
            ]
        }


def test_what_an_agent_says_is_told_by_gpu_and_pod():
    scene = Scene()
    limits = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    scene.state.see(builders.pod(limits=limits, node="n0", uid="u1", namespace="ml", name="p"))
    held = [{"gpu": 1, "used": {"cores": 20, "memoryMib": 512}}]
    scene.client.answers[agent_path("n0")] = {
        "gpus": [{"gpu": 1, "load": {"cores": 55, "memoryMib": 900}}, {"gpu": 7}],
        "containers": [
            {"uid": "u1", "container": "a", "gpus": held},
            {"uid": "u1", "container": "b", "gpus": held},
            {"uid": "stranger", "container": "c", "gpus": held},
        ],
    }

    assert scene.read() == {
        "n0": MeasuredNode(
            (MeasuredGpu("GPU-n0-1", 55, 900),), (MeasuredPod("ml/p", "GPU-n0-1", 40, 1024),)
        )
    }


def test_cluster_without_agents_shows_nothing_and_is_asked_ever_less():
    scene = Scene()
    assert scene.read() == {}
    assert scene.asked() == [agent_path("n0")]
    for now, asked in ((59, 0), (61, 1), (120, 0), (182, 1), (240, 0)):
        scene.now = now
        scene.read()
        assert len(scene.asked()) == asked, now


def test_agent_that_answers_no_more_is_forgotten():
    scene = Scene()
    scene.client.answers[agent_path("n0")] = {"gpus": [{"gpu": 0, "load": {"cores": 5}}]}
    assert "n0" in scene.read()
    scene.client.answers.clear()

    assert scene.read() == {}


def test_large_cluster_is_asked_in_turns():
    nodes = [builders.node(f"n{at:03}", 1) for at in range(450)]
    scene = Scene(*nodes)
    for node in nodes:
        scene.client.answers[agent_path(node.name)] = {}
    seen = set()
    for now in range(3):
        scene.now = now
        scene.read()
        asked = scene.asked()
        assert len(asked) <= 200
        seen.update(asked)

    assert len(seen) == 450


def test_silence_is_what_the_metrics_api_says():
    scene = Scene(builders.node("n0"), builders.node("n1"), builders.node("n2"))
    scene.silence(n0="True", n1="False", n2="UnKnow", elsewhere="False")

    assert scene.read() == {"n1": MeasuredNode(silent=True)}

    scene.silence(n0="True", n1="True")
    scene.now = 5
    assert scene.read() == {}


@pytest.mark.parametrize("answer", ["text", {"items": 5}, {"items": [{"status": 3}]}])
def test_answer_that_cannot_be_read_is_no_silence(answer):
    scene = Scene()
    scene.client.answers[GPUINFOS] = answer

    assert scene.read() == {}


def test_nothing_is_asked_before_the_cluster_is_known():
    scene = Scene()
    scene.state.ready = False

    assert scene.read() == {}
    assert scene.client.asked == []
