"""The Node is written once, and again only for what changed."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import gpu, node
from fakes.door import FakeDoor
from slicewise.dialects import DEFAULT, GPUS, read_gpus
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.model import NodeNotice
from slicewise.nodeagent.gpus.publisher import PUBLISHED, NodePublisher, plan_patch, read_published

_ALL = ("slicewise", "tkestack", "tkestack-upstream", "gpushare", "elastic", "nvidia")
_FACTS = NodeFacts(node("n0", gpus=2), (80, 80), "580.95.05", "13.0")
_COUNT = {"aliyun.com/gpu-count": 2}


def _publish(publisher, *args):
    return asyncio.run(publisher.publish(*args))


def test_node_is_written_once():
    door = FakeDoor(NodeNotice("n0"))
    publisher = NodePublisher(door, _ALL)

    assert all(_publish(publisher, _FACTS, _COUNT) for _ in range(3))
    assert (door.reads, len(door.patches)) == (1, 1)
    assert read_gpus("n0", door.notice.annotations[GPUS]) == _FACTS.node
    assert door.notice.capacity == door.notice.allocatable == _COUNT


def test_restarted_agent_writes_nothing_that_is_there():
    door = FakeDoor(NodeNotice("n0"))
    _publish(NodePublisher(door, _ALL), _FACTS, _COUNT)
    _publish(NodePublisher(door, _ALL), _FACTS, _COUNT)

    assert len(door.patches) == 1


def test_change_of_health_alone_is_one_small_write():
    door = FakeDoor(NodeNotice("n0"))
    publisher = NodePublisher(door, ("gpushare",))
    _publish(publisher, _FACTS, _COUNT)
    sick = replace(_FACTS.node.gpus[1], healthy=False)
    _publish(publisher, replace(_FACTS, node=node("n0", gpus=[_FACTS.node.gpus[0], sick])), _COUNT)

    assert len(door.patches) == 2
    assert set(door.patches[1].annotations) == {GPUS}
    assert not door.patches[1].labels
    assert not door.patches[1].amounts


def test_lost_gpus_take_their_labels_and_amounts_with_them():
    door = FakeDoor(NodeNotice("n0", {"kept": "yes"}, {"kept": "too"}, {"cpu": "4"}))
    _publish(NodePublisher(door, _ALL), _FACTS, _COUNT)
    _publish(NodePublisher(door, _ALL), NodeFacts(node("n0", gpus=[])), {})

    assert door.notice.labels == {"kept": "yes"}
    assert set(door.notice.annotations) == {"kept", GPUS, PUBLISHED}
    assert door.notice.capacity == {"cpu": "4"}


def test_labels_of_nvidias_own_discovery_are_left_alone():
    theirs = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED"}
    door = FakeDoor(NodeNotice("n0", theirs))
    _publish(NodePublisher(door, _ALL), _FACTS)
    product = door.notice.labels["nvidia.com/gpu.product"]
    _publish(NodePublisher(door, ()), NodeFacts(node("n0", gpus=[])))

    assert product == "NVIDIA-A100-SXM4-40GB-SHARED"
    assert door.notice.labels == theirs


def test_system_that_was_switched_off_loses_its_labels():
    door = FakeDoor(NodeNotice("n0"))
    _publish(NodePublisher(door, ("gpushare", "tkestack")), _FACTS)
    _publish(NodePublisher(door, ("tkestack",)), _FACTS)

    assert set(door.notice.labels) == {"gaia.nvidia.com/gpu-model"}


@pytest.mark.parametrize("carried_out", [True, False])
def test_lost_answer_is_settled_by_reading(carried_out):
    door = FakeDoor(NodeNotice("n0"))
    door.failures, door.carried_out = 1, carried_out
    publisher = NodePublisher(door, _ALL)

    assert not _publish(publisher, _FACTS)
    assert _publish(publisher, _FACTS)
    assert door.reads == 2
    assert len(door.patches) == (1 if carried_out else 2)
    assert read_gpus("n0", door.notice.annotations[GPUS]) == _FACTS.node


def test_node_that_is_not_registered_yet_is_published_when_it_is():
    door = FakeDoor(None)
    publisher = NodePublisher(door, ())

    assert not _publish(publisher, _FACTS)
    door.notice = NodeNotice("n0")
    assert _publish(publisher, _FACTS)


def test_amounts_that_the_kubelet_zeroed_are_written_again():
    door = FakeDoor(NodeNotice("n0"))
    publisher = NodePublisher(door, ("gpushare",))
    _publish(publisher, _FACTS, _COUNT)
    zeroed = replace(door.notice, capacity={"aliyun.com/gpu-count": "0"}, version=99)
    _publish(publisher, _FACTS, _COUNT, zeroed)

    assert door.patches[1].amounts == _COUNT
    assert not door.patches[1].annotations


def test_notice_older_than_our_own_write_causes_none():
    before = NodeNotice("n0")
    door = FakeDoor(before)
    publisher = NodePublisher(door, ())
    _publish(publisher, _FACTS)
    _publish(publisher, _FACTS, None, before)

    assert len(door.patches) == 1


def test_annotations_of_the_caller_are_kept_with_ours_in_one_write():
    door = FakeDoor(NodeNotice("n0"))
    publisher = NodePublisher(door, ())
    for _ in range(2):
        _publish(publisher, _FACTS, None, None, {"slicewise.io/agent": "here"})

    assert len(door.patches) == 1
    assert door.notice.annotations["slicewise.io/agent"] == "here"


def test_heartbeat_beats_only_as_often_as_asked():
    door, now = FakeDoor(NodeNotice("n0")), [0]
    publisher = NodePublisher(door, (), heartbeat_seconds=30, clock_ns=lambda: now[0])
    beats = []
    for seconds in (100, 110, 129, 130, 200):
        now[0] = seconds * 10**9
        _publish(publisher, _FACTS)
        beats.append(int(door.notice.annotations["tydic.io/node-gpu-heartbeat"]) // 10**9)

    assert beats == [100, 100, 100, 130, 200]
    assert len(door.patches) == 3


@pytest.mark.parametrize("text", ["", "[]", "null", '{"labels":7,"annotations":[1]}', "{"])
def test_unreadable_record_claims_nothing(text):
    kinds = read_published(NodeNotice("n0", annotations={PUBLISHED: text}))

    assert set(kinds.values()) == {frozenset()}


_facts = st.builds(
    lambda models, healthy: NodeFacts(
        node(
            "n0",
            gpus=[
                gpu(at, model=model, healthy=healthy, uuid=f"g{at}")
                for at, model in enumerate(models)
            ],
        )
    ),
    st.lists(st.sampled_from(["NVIDIA A10", "Tesla T4", "é"]), max_size=4),
    st.booleans(),
)


@given(st.lists(st.tuples(_facts, st.sets(st.sampled_from(_ALL))), min_size=1, max_size=5))
def test_node_ends_as_if_only_the_last_had_been_published(steps):
    foreign = NodeNotice("n0", {"a": "b", "nvidia.com/gpu.count": "7"}, {"c": "d"})
    door, alone = FakeDoor(foreign), FakeDoor(foreign)
    for facts, dialects in steps:
        _publish(NodePublisher(door, sorted(dialects)), facts)
    _publish(NodePublisher(alone, sorted(steps[-1][1])), steps[-1][0])

    assert door.notice.labels == alone.notice.labels
    assert door.notice.annotations == alone.notice.annotations
    assert plan_patch(door.notice, *_planned(steps[-1])).empty


def _planned(step):
    facts, dialects = step
    return DEFAULT.publish(facts, sorted(dialects)), {}
