"""What-if as values: a snapshot and pods in, outcomes out, and the snapshot stays as it was."""

import builders
from fakes.cluster import FakeState
from slicewise.explain.what_if import WhatIfPod, describe_outcomes, simulate
from slicewise.model import Container
from slicewise.state.queries import PodQueries


def wanted(name, count):
    return WhatIfPod(builders.pod(Container(name="c", limits={"nvidia.com/gpu": count}), uid=name))


def test_later_pods_see_what_earlier_ones_took():
    state = FakeState(builders.node("n0", gpus=2))

    outcomes = simulate(PodQueries(state), state.snapshot(), [wanted("a", 2), wanted("b", 1)])

    told = describe_outcomes(outcomes)
    assert [each["fits"] for each in told["pods"]] == [True, False]
    assert (told["fits"], told["fitting"]) == (False, 1)


def test_snapshot_is_the_same_afterwards():
    state = FakeState(builders.node("n0", gpus=2))
    before = state.snapshot()

    simulate(PodQueries(state), before, [wanted("a", 2)])

    assert before.get("n0").holdings == ()
    assert state.snapshot() == before
