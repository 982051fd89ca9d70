"""Fairness: one pod at a time, the longest wait first, an end at the deadline, the nearest room."""

from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.model import NodeState
from slicewise.placement import PlacementRequest
from slicewise.placement.fairness import FairQueue, FairRules, find_nearest_room

RULES = FairRules(after=10.0, lasting=5.0)


def test_longest_wait_comes_first_and_only_past_the_waiting_time():
    queue = FairQueue(RULES)
    queue.wait("late", 3.0)
    queue.wait("early", 1.0)

    assert queue.due(10.9) == []
    assert queue.due(11.0) == ["early"]
    assert queue.due(20.0) == ["early", "late"]


def test_pod_whose_time_is_up_waits_anew_behind_the_others():
    queue = FairQueue(RULES)
    queue.wait("first", 0.0)
    queue.wait("second", 1.0)
    assert queue.grant("first", 11.0) == 16.0

    assert queue.expire(15.9) is None
    assert queue.expire(16.0) == "first"
    assert queue.due(16.0) == ["second"]
    assert queue.due(26.0) == ["second", "first"]


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["wait", "leave", "time"]), st.floats(0, 9)),
    max_size=60,
)


@given(steps)
def test_room_is_kept_for_one_pod_that_has_waited_and_never_past_the_deadline(listed):
    queue, now, known = FairQueue(RULES), 0.0, {}
    for uid, what, seconds in listed:
        now += seconds
        gone = queue.expire(now)
        if gone is not None:
            known[gone] = now
        assert queue.holder is None or now < queue.deadline <= now + RULES.lasting
        if what == "wait":
            queue.wait(uid, now)
            known.setdefault(uid, now)
        elif what == "leave":
            queue.leave(uid)
            known.pop(uid, None)
        for due in queue.due(now)[:1]:
            assert queue.holder is None
            assert now - known[due] >= RULES.after
            queue.grant(due, now)
        assert queue.holder is None or queue.holder in known


def crowded(name, *cores, gpus=2):
    state = NodeState.empty(builders.node(name, gpus))
    for at, amount in enumerate(cores):
        piece = builders.piece(at % gpus, amount, 400 * amount)
        state = state.hold(builders.holding(f"{name}{at}", piece))
    return state


def test_nearest_room_is_where_fewest_pods_must_end():
    many = crowded("a", 30, 30, 30, 30)
    few = crowded("b", 60, 60)

    found = find_nearest_room(builders.snapshot(many, few), PlacementRequest(builders.whole(2)))

    assert (found.node, len(found.victims)) == ("b", 2)


def test_reserved_room_is_not_waited_for():
    piece = builders.piece(0, 60, 24000)
    reserved = builders.holding("r@a", piece, tentative=True)
    state = crowded("a", gpus=1).hold(reserved)

    assert find_nearest_room(builders.snapshot(state), PlacementRequest(builders.whole(1))) is None
