"""Room kept for one pod: never more than it gets, never what others hold, and all in the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.model import NodeState, charge
from slicewise.placement import (
    PlacementRequest,
    Planner,
    StepBudget,
    VictimLimits,
    keep_room,
    plan_room,
    read_policy,
)
from slicewise.placement.budget import PREEMPT_STEPS

MEMORY = 40960


def held(uid, gpu, cores=50, priority=0):
    return builders.holding(
        uid, builders.piece(gpu, cores, MEMORY * cores // 100), priority=priority
    )


def node_state(*holdings, gpus=2):
    state = NodeState.empty(builders.node("a", gpus))
    for each in holdings:
        state = state.hold(each)
    return state


def keep(state, request, awaited):
    planner = Planner(read_policy("binpack"))
    wanted = PlacementRequest(request)
    return keep_room(planner, builders.snapshot(state), wanted, "a", awaited)


def plan(state, request, allowed=(), leaving=()):
    limits = VictimLimits(frozenset(allowed), frozenset(leaving), StepBudget(PREEMPT_STEPS))
    found = plan_room(state, PlacementRequest(request), 10, limits)
    return found and ([each.uid for each in found.eviction.victims],
                      [each.uid for each in found.awaited])  # fmt: skip


def test_free_part_of_the_gpu_that_is_waited_for_is_kept():
    kept = keep(node_state(held("x", 0), held("y", 1)), builders.whole(1), ["y"])

    (piece,) = charge(kept.request, kept.allocation)
    assert (piece.gpu, piece.cores, piece.memory) == (1, 50, MEMORY // 2)
    assert not kept.complete


def test_pod_that_fits_keeps_its_own_allocation():
    kept = keep(node_state(held("x", 0)), builders.whole(1), ["x"])

    assert (kept.complete, kept.allocation.gpus) == (True, (1,))


def test_nothing_is_kept_where_waiting_does_not_help():
    assert keep(node_state(held("x", 0), held("y", 1)), builders.whole(2), ["y"]) is None


shares = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 100), st.booleans()), min_size=1, max_size=12
)


@given(shares, st.sampled_from([builders.whole(1), builders.whole(2), builders.fraction(60)]))
def test_kept_room_is_free_and_no_more_than_the_pod_asks_for(listed, request):
    state, awaited = NodeState.empty(builders.node("a", 4)), []
    for at, (gpu, cores, waits) in enumerate(listed):
        holding = held(f"u{at}", gpu, cores)
        if all(map(state.has_room, holding.charges)):
            state = state.hold(holding)
            awaited += [holding.uid] if waits else []

    kept = keep(state, request, awaited)

    pieces = () if kept is None else charge(kept.request, kept.allocation)
    shares = request.containers[0].shares
    assert len(pieces) <= len(shares)
    assert all(map(state.has_room, pieces))
    assert all(piece.cores <= shares[0].cores for piece in pieces)
    for uid in awaited:
        state = state.release(uid)
    assert kept is None or keep(state, request, ()).complete


@pytest.mark.parametrize(
    ("allowed", "leaving", "expected"),
    [
        pytest.param("y", "x", ([], ["x"]), id="leaving-suffices"),
        pytest.param("xy", "", (["x"], []), id="nobody-leaves"),
        pytest.param("", "", None, id="nobody-may-go"),
    ],
)
def test_leaving_pods_are_room_before_anybody_is_evicted(allowed, leaving, expected):
    state = node_state(held("x", 0), held("y", 1))

    assert plan(state, builders.whole(1), allowed, leaving) == expected


def test_fewest_are_evicted_beside_those_that_leave_and_only_these_are_awaited():
    crowded = node_state(
        held("l0", 0, 30), held("l1", 0, 30), held("v0", 0, 30), held("w0", 1), held("w1", 1),
        held("l2", 2), held("h", 2, 50, 20), gpus=3,
    )  # fmt: skip

    found = plan(crowded, builders.whole(1), {"v0", "w0", "w1"}, {"l0", "l1", "l2"})

    assert found == (["v0"], ["l0", "l1"])
