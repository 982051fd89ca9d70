"""What-if as values: a snapshot and pods in, outcomes out, and the snapshot stays as it was."""

import builders
from fakes.cluster import FakeState
from slicewise.explain.what_if import WhatIfPod, describe_outcomes, inquire, simulate
from slicewise.model import Container
from slicewise.state.queries import PodQueries


def wanted(name, count):
    return WhatIfPod(builders.pod(Container(name="c", limits={"nvidia.com/gpu": count}), uid=name))


def test_later_pods_see_what_earlier_ones_took():
    state = FakeState(builders.node("n0", gpus=2))

    asked = [wanted("a", 2), wanted("b", 1)]
    queries = PodQueries(state)
    outcomes = [inquire(queries, each) for each in simulate(queries, state.snapshot(), asked)]

    told = describe_outcomes(outcomes)
    assert [each["fits"] for each in told["pods"]] == [True, False]
    assert (told["fits"], told["fitting"]) == (False, 1)


def test_isolation_that_no_gpu_offers_is_the_reason():
    queries = PodQueries(FakeState(builders.node("n0", gpus=1)))
    limits = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
    asked = WhatIfPod(builders.pod(limits=limits, annotations={"slicewise.io/isolation": "hook"}))
    (outcome,) = simulate(queries, queries.state.snapshot(), [asked])

    (told,) = describe_outcomes([inquire(queries, outcome)])["pods"]

    assert told["nodes"][0]["reason"] == "InsufficientIsolation"
    assert told["nodes"][0]["phrase"] == "Insufficient GPU isolation"


def test_snapshot_is_the_same_afterwards():
    state = FakeState(builders.node("n0", gpus=2))
    before = state.snapshot()

    list(simulate(PodQueries(state), before, [wanted("a", 2)]))

    assert before.get("n0").holdings == ()
    assert state.snapshot() == before
