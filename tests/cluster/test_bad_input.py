"""Bad input is named with its field and value, and everything else goes on."""

import pytest

import builders
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import DEFAULT
from slicewise.model import Container, NodeNotice, Reason, SlicewiseError
from slicewise.placement import POLICIES, PlacementRequest, Planner

GOOD = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 2048}
MARKS = {"nvidia.com/predicate-gpu-idx-0": "1", "nvidia.com/predicate-node": "n0"}


def pod(limits, **facts):
    return builders.pod(limits=limits, **facts)


BAD_PODS = [
    pytest.param(
        pod(GOOD, annotations={**MARKS, "nvidia.com/predicate-gpu-idx-0": "zero"}, node="n0"),
        "annotation nvidia.com/predicate-gpu-idx-0='zero'",
        id="malformed-annotation",
    ),
    pytest.param(pod({"aliyun.com/gpu-mem": "-3"}), "aliyun.com/gpu-mem=-3", id="negative"),
    pytest.param(pod({"aliyun.com/gpu-mem": "1e30"}), "aliyun.com/gpu-mem=1e30", id="absurd"),
    pytest.param(pod({"nvidia.com/gpu": "500m"}), "nvidia.com/gpu=500m", id="half-a-gpu"),
    pytest.param(pod({"nvidia.com/gpu": 10**9}), "nvidia.com/gpu=1000000000", id="a-billion-gpus"),
    pytest.param(
        pod({"nvidia.com/vcuda-core": 150}), "nvidia.com/vcuda-core=150", id="150-percent"
    ),
    pytest.param(
        pod({"elasticgpu.io/gpu-core": 150}), "elasticgpu.io/gpu-core=150", id="150-percent-elastic"
    ),
    pytest.param(
        builders.pod(*(Container(f"c{at}", limits=GOOD) for at in range(10_000))),
        "10000 containers",
        id="10000-containers",
    ),
]


@pytest.mark.parametrize(("bad", "message"), BAD_PODS)
def test_bad_pod_is_named_and_the_rest_is_counted(bad, message):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0", gpus=2)))
    ledger.apply(PodSeen(bad))
    ledger.apply(PodSeen(pod(GOOD, uid="u1", name="good", annotations=MARKS, node="n0")))

    (problem,) = ledger.problems()
    assert message in problem.detail
    good = ledger.snapshot().get("n0").find("u1")
    assert good.charges == (builders.piece(1, 30, 2048),)


def test_unknown_model_is_refused_by_name_and_other_pods_are_placed():
    snapshot = builders.snapshot(builders.node(gpus=2))
    asks = pod(GOOD, annotations={"nvidia.com/use-gputype": "h9000"})
    planner = Planner(POLICIES["default"])

    decision = planner.decide(snapshot, PlacementRequest(DEFAULT.read_request(asks)))

    assert decision.refusals["n0"].reason is Reason.MODEL
    assert "wants h9000" in decision.refusals["n0"].detail
    assert planner.place(snapshot, PlacementRequest(DEFAULT.read_request(pod(GOOD)))) is not None


def test_node_that_lists_a_gpu_twice_is_named_and_others_are_read():
    gpu = '{"id":"GPU-a","core":100,"memory":1000,"type":"T4","isMig":false,"health":true}'
    key = "tydic.io/nvidia-device-register"
    twice = NodeNotice("n0", annotations={key: f"[{gpu},{gpu}]"})
    once = NodeNotice("n1", annotations={key: f"[{gpu}]"})

    with pytest.raises(SlicewiseError, match="node n0: gpu uuid 'GPU-a' is listed twice"):
        DEFAULT.read_node(twice)
    assert len(DEFAULT.read_node(once).gpus) == 1


def test_mistake_of_ours_in_reading_one_pod_makes_that_one_unreadable(monkeypatch):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0", gpus=2)))
    claim = DEFAULT.claim

    def fail(pod):
        return 1 // 0 if pod.name == "bad" else claim(pod)

    monkeypatch.setattr(DEFAULT, "claim", fail)
    ledger.apply(PodSeen(pod(GOOD, uid="u0", name="bad", node="n0")))
    ledger.apply(PodSeen(pod(GOOD, uid="u1", name="good", annotations=MARKS, node="n0")))

    (problem,) = [each for each in ledger.problems() if each.subject.endswith("bad")]
    assert "by a mistake of ours: ZeroDivisionError" in problem.detail
    assert ledger.snapshot().get("n0").find("u1") is not None
