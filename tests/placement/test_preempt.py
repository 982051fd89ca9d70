"""Victims are few, unimportant, and enough."""

import builders
from slicewise.model import WHOLE_GPU, Constraints, NodeState
from slicewise.placement import PlacementRequest, evict, feasible, preempt


def holding(uid, gpu, cores=100, memory=40960, priority=0):
    return builders.holding(uid, builders.piece(gpu, cores, memory), priority=priority)


def state(*holdings, name="n0", gpus=2):
    held = NodeState.empty(builders.node(name, gpus=gpus))
    for each in holdings:
        held = held.hold(each)
    return held


def victims(eviction):
    return [victim.uid for victim in eviction.victims]


def test_lowest_priority_goes_first():
    full = state(holding("a", 0, priority=5), holding("b", 1, priority=1))

    assert victims(evict(full, PlacementRequest(builders.whole(1)), 10)) == ["b"]


def test_one_large_victim_beats_two_small_ones():
    full = state(holding("a", 0, 50, 100), holding("b", 0, 50, 100), holding("c", 1), gpus=2)

    assert victims(evict(full, PlacementRequest(builders.whole(1)), 10)) == ["c"]


def test_two_small_victims_beat_one_of_higher_priority():
    full = state(
        holding("a", 0, 50, 100, 1), holding("b", 0, 50, 100, 1), holding("c", 1, priority=2)
    )

    assert victims(evict(full, PlacementRequest(builders.whole(1)), 10)) == ["a", "b"]


def test_equal_or_higher_priority_is_never_evicted():
    full = state(holding("a", 0, priority=10), holding("b", 1, priority=11))

    assert evict(full, PlacementRequest(builders.whole(1)), 10) is None


def test_nobody_is_evicted_when_that_would_not_help():
    full = state(holding("a", 0), holding("b", 1))
    model = Constraints(models=("h100",))

    assert evict(full, PlacementRequest(builders.whole(3)), 10) is None
    assert (
        evict(full, PlacementRequest(builders.request([WHOLE_GPU], constraints=model)), 10) is None
    )


def test_pod_that_fits_already_needs_no_victim():
    assert evict(state(holding("a", 0)), PlacementRequest(builders.whole(1)), 10).victims == ()


def test_only_allowed_pods_are_considered():
    full = state(holding("a", 0), holding("b", 1))

    assert victims(evict(full, PlacementRequest(builders.whole(1)), 10, allowed={"b"})) == ["b"]
    assert evict(full, PlacementRequest(builders.whole(1)), 10, allowed=set()) is None


def test_node_with_the_cheapest_victims_is_chosen():
    dear = state(holding("a", 0, priority=3), holding("b", 1, priority=3), name="n0")
    cheap = state(holding("c", 0, priority=3), holding("d", 1, priority=2), name="n1")

    eviction = preempt(builders.snapshot(dear, cheap), PlacementRequest(builders.whole(1)), 9)

    assert (eviction.node, victims(eviction)) == ("n1", ["d"])


def test_no_victim_is_superfluous_on_a_crowded_node():
    crowd = [holding(f"u{at:02}", at % 4, 4, 100, priority=at % 3) for at in range(96)]
    full = state(*crowd, gpus=4)

    eviction = evict(full, PlacementRequest(builders.whole(2)), 10)

    left = full
    for victim in eviction.victims:
        left = left.release(victim.uid)
    request = builders.whole(2)
    assert feasible(left, request, PlacementRequest(request).limits)
    for spared in eviction.victims:
        assert not feasible(left.hold(spared), request, PlacementRequest(request).limits)
