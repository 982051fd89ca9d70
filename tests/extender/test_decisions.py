import asyncio
import json

import pytest

import builders
from extender import bodies
from fakes.cluster import FakeState
from slicewise.cluster import Quota, read_quota
from slicewise.extender.decisions import UNKNOWN_NODE, Decisions, spread_points
from slicewise.extender.filters import HoldFilter
from slicewise.extender.protocol import Victims, decode_args, decode_pod
from slicewise.model import DialectError
from slicewise.state.queries import NotReadyError, PodQueries

T4 = "Tesla T4"


def share(cores=30, memory=4096):
    return {"slicewise.io/cores": cores, "slicewise.io/memory": memory}


def whole(count=1):
    return {"slicewise.io/gpu": count}


def ask(limits, names=None, nodes=None, **facts):
    return decode_args(bodies.args(bodies.pod(limits, **facts), names, nodes))


def holder(uid, node, gpus, cores=100, memory=40960, **facts):
    """A pod on these GPUs of the node, as our own record says."""
    slices = [[gpu, f"GPU-{node}-{gpu}", cores, memory] for gpu in gpus]
    record = json.dumps({"containers": {"c0": slices}, "node": node})
    limits = {"slicewise.io/gpu": len(gpus)}
    if cores != 100:
        limits |= {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
    return builders.pod(
        limits=limits,
        uid=uid,
        name=uid,
        node=node,
        annotations={"slicewise.io/allocation": record},
        **facts,
    )


@pytest.fixture
def state():
    return FakeState(
        builders.node("a"), builders.node("b", gpus=4), builders.node("c", 1, model=T4, memory=100)
    )


@pytest.fixture
def verbs(state):
    return Decisions(PodQueries(state))


def test_fitting_nodes_stay_in_the_order_they_were_sent(verbs):
    reply = verbs.filter(ask(share(), ["b", "c", "a"])).reply

    assert reply.node_names == ["b", "a"]


def test_node_objects_are_answered_with_node_objects(verbs):
    nodes = [bodies.node("b"), bodies.node("c")]

    filtered = verbs.filter(ask(share(), nodes=nodes))

    assert filtered.reply.node_names is None
    assert [json.loads(bytes(body)) for body in filtered.bodies] == nodes[:1]


def test_every_refused_node_has_its_reason(verbs, state):
    state.see(holder("x", "a", [0, 1]))

    reply = verbs.filter(ask(share(), ["a", "c", "gone"])).reply

    assert reply.node_names == []
    assert reply.failed_nodes == {
        "a": "Insufficient GPU memory",
        "c": "No GPU is large enough",
        "gone": UNKNOWN_NODE,
    }


def test_nodes_that_no_eviction_helps_are_unresolvable(verbs, state):
    state.see(holder("x", "a", [0, 1]))

    reply = verbs.filter(ask(share(), ["a", "c", "gone"])).reply

    assert set(reply.failed_and_unresolvable_nodes) == {"c", "gone"}


def test_pod_without_gpus_passes_unchanged(verbs):
    filtered = verbs.filter(ask({"cpu": "1"}, ["x", "y"]))

    assert filtered.reply.node_names == ["x", "y"]
    assert filtered.reply.failed_nodes == {}


def test_pod_that_cannot_be_read_is_named_with_field_and_value(verbs):
    with pytest.raises(DialectError, match=r"slicewise\.io/cores=150"):
        verbs.filter(ask(share(cores=150), ["a"]))


def test_nothing_is_allocated_before_the_state_is_synced(verbs, state):
    state.ready = False

    with pytest.raises(NotReadyError, match="retry later"):
        verbs.filter(ask(share(), ["a"]))
    assert verbs.filter(ask({}, ["a"])).passing == 1


def test_quota_refuses_one_model_and_admits_another():
    quota = read_quota('{"team": {"quota": {"A100": 1, "T4": 1}}}')
    state = FakeState(builders.node("a"), builders.node("t", model=T4), quota=quota)
    state.see(holder("x", "a", [0], namespace="team"))

    reply = Decisions(PodQueries(state)).filter(ask(whole(), ["a", "t"], namespace="team")).reply

    assert reply.node_names == ["t"]
    assert reply.failed_and_unresolvable_nodes == {"a": "Namespace is over its GPU quota"}


@pytest.mark.parametrize("nodes", [2, 40])
def test_burst_of_pods_that_their_scheduler_binds_stays_within_a_quota_of_one(nodes):
    quota = read_quota('{"default": {"quota": {"A100": 1}}}')
    names = [f"n{at}" for at in range(nodes)]
    state = FakeState(*(builders.node(name, 4, agent=True) for name in names), quota=quota)
    holder = HoldFilter(Decisions(PodQueries(state)), clock=lambda: 0.0)

    asked = [ask({"nvidia.com/gpu": 1}, names, uid=f"u{at}", name=f"u{at}") for at in range(5)]
    first = [bool(holder.filter(each).reply.node_names) for each in asked]
    again = [bool(holder.filter(each).reply.node_names) for each in asked]

    assert first == again == [True, False, False, False, False]


def test_pod_is_refused_with_the_reason_while_the_quota_cannot_be_read(verbs, state):
    state.quota = Quota(unreadable="ConfigMap kube-system/gpuquota could not be read so far")

    filtered = verbs.filter(ask(whole(), ["a"]))

    assert filtered.reply.failed_nodes == {"a": "GPU quota cannot be read"}


def test_a_pod_does_not_stand_in_its_own_way():
    quota = read_quota('{"default": {"quota": {"A100": 1}}}')
    state = FakeState(builders.node("a", 1), quota=quota)
    annotations = {
        "nvidia.com/predicate-node": "a",
        "nvidia.com/predicate-gpu-idx-0": "0",
        "nvidia.com/gpu-assigned": "false",
    }
    limits = {"nvidia.com/vcuda-core": 100}
    state.see(builders.pod(limits=limits, annotations=annotations))
    assert state.snapshot().get("a").used_cores == (100,)

    reply = Decisions(PodQueries(state)).filter(ask(limits, ["a"], annotations=annotations)).reply

    assert reply.node_names == ["a"]
    assert state.ledger.usage.held("default", "NVIDIA A100-SXM4-40GB") == 100


def test_best_node_alone_has_ten_points(verbs, state):
    state.see(holder("x", "b", [0], cores=50, memory=4096))

    points = {each.host: each.score for each in verbs.prioritize(ask(share(), ["a", "b", "c"]))}

    assert points["b"] == 10
    assert points["a"] < 10
    assert points["c"] == 0


def test_points_are_whole_numbers_between_zero_and_ten():
    points = spread_points({"a": -5.0, "b": 1e9, "c": 7.5, "d": float("-inf")}, "b")

    assert points == {"a": 0, "b": 10, "c": 0, "d": 0}


def test_free_gpus_of_the_wanted_model_are_counted_up_to_ten():
    state = FakeState(builders.node("a", 12), builders.node("b", 3), builders.node("t", model=T4))
    state.see(holder("x", "b", [0], cores=50, memory=1))
    verbs = Decisions(PodQueries(state))
    wanted = {"nvidia.com/gpu.model": "A100"}

    scores = verbs.count_free(ask({"nvidia.com/gpu": 1}, ["a", "b", "t"], annotations=wanted))
    unasked = verbs.count_free(ask({"nvidia.com/gpu": 1}, ["a"]))

    assert [each.score for each in scores] == [10, 2, 0]
    assert [each.score for each in unasked] == [0]


def preempt(verbs, limits, offered, priority=10):
    pod = decode_pod(json.dumps(bodies.pod(limits, priority=priority)).encode())
    reply = asyncio.run(verbs.preempt(pod, offered)).node_name_to_meta_victims
    return {name: ([pod.uid for pod in each.pods], each.violations) for name, each in reply.items()}


def test_victims_that_are_not_needed_are_spared(verbs, state):
    state.see(holder("x", "a", [0]), holder("y", "a", [1]))

    kept = preempt(verbs, whole(), {"a": Victims(("x", "y"), 2)})

    assert kept == {"a": (["x"], 1)}


def test_victims_are_exchanged_when_others_help(verbs, state):
    state.see(holder("x", "a", [0], 50, 1), holder("y", "a", [0], 10, 1, priority=50))
    state.see(holder("z", "a", [1], 50, 1))

    kept = preempt(verbs, whole(), {"a": Victims(("x",), 0)})

    assert kept == {"a": (["z"], 0)}


def test_nodes_that_no_victim_helps_are_dropped(verbs, state):
    state.see(holder("x", "a", [0]), holder("y", "a", [1], priority=50))
    state.see(holder("z", "c", [0], 50, 10))
    offered = {"a": Victims(("x",), 0), "c": Victims(("z",), 0), "gone": Victims(("w",), 0)}

    assert preempt(verbs, whole(2), offered) == {}


def test_victims_without_gpus_stay_on_the_list(verbs, state):
    state.see(holder("x", "a", [0]), holder("y", "a", [1]))

    kept = preempt(verbs, whole(), {"a": Victims(("plain", "x", "y"), 0)})

    assert kept == {"a": (["plain", "x"], 0)}


def test_preemption_for_a_pod_without_gpus_is_left_alone(verbs):
    assert preempt(verbs, {}, {"q": Victims(("v",), 1)}) == {"q": (["v"], 1)}


def test_pods_own_policy_decides(state):
    state.see(holder("x", "b", [0], cores=50, memory=4096))
    verbs = Decisions(PodQueries(state))
    wanted = ask(share(), ["a", "b"], annotations={"slicewise.io/policy": "spread"})

    points = {each.host: each.score for each in verbs.prioritize(wanted)}

    assert points["a"] == 10
