"""The isolation tier as a filter on GPUs: the engine's arrays, `admitted_gpus` and the reasons."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from slicewise.model import (
    HOOKED,
    UNLIMITED_USE,
    Isolation,
    IsolationRules,
    IsolationTier,
    IsolationWish,
    NodeState,
    OfferedIsolation,
    Reason,
)
from slicewise.placement import (
    UNLIMITED,
    PlacementRequest,
    Planner,
    QuotaLimits,
    Screener,
    explain,
    feasible,
)

NONE, HOOK, MPS, DRIVER = IsolationTier
OFFERS = (
    OfferedIsolation(),
    OfferedIsolation((HOOK,), (HOOK,)),
    OfferedIsolation((HOOK, DRIVER), (HOOK,)),
    OfferedIsolation((HOOK, MPS), (HOOK, MPS)),
    OfferedIsolation((HOOK,), ()),
)


def node(name, *offers):
    gpus = [
        builders.gpu(at, uuid=f"GPU-{name}-{at}", isolation=OFFERS[each])
        for at, each in enumerate(offers)
    ]
    return builders.node(name, gpus=gpus)


wishes = st.builds(
    IsolationWish,
    st.none() | st.sampled_from(list(IsolationTier)),
    st.none() | st.sampled_from((NONE, HOOK, MPS)),
)
rules = st.builds(
    IsolationRules,
    st.sampled_from((UNLIMITED_USE, HOOKED, Isolation(DRIVER, HOOK))),
    st.booleans(),
    st.sampled_from(("", "", "", "unread")),
)
shares = st.sampled_from(((30, 4096), (0, 4096), (100, 0)))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(shares, min_size=1, max_size=2),
    wishes,
    rules,
)
def test_arrays_decide_as_the_one_rule_and_every_refusal_has_its_reason(offers, parts, wish, rules):
    nodes = [node(f"n{at}", *each) for at, each in enumerate(offers)]
    asked = replace(builders.request([builders.share(*part) for part in parts]), isolation=wish)
    limits = QuotaLimits(isolation=rules)
    snapshot = builders.snapshot(*nodes)
    planner = Planner()
    names = [each.name for each in nodes]
    screening = Screener(planner.tables).screen(snapshot, PlacementRequest(asked, limits), names)

    for name, fits in zip(names, screening.fits, strict=True):
        state = snapshot.get(name)
        assert fits == feasible(state, asked, limits)
        if not fits:
            assert explain(state, asked, limits).reason is screening.reasons[name]


def test_refusal_names_what_is_demanded_and_what_is_offered():
    state = NodeState.empty(node("n0", 1, 1, 1, 1))
    asked = replace(builders.fraction(), isolation=IsolationWish(DRIVER, HOOK))
    refusal = explain(state, asked, UNLIMITED)

    assert refusal.reason is Reason.ISOLATION
    assert str(refusal) == (
        "Insufficient GPU isolation: needs memory isolation driver, gpu 0 to 3 offer hook"
    )


def test_gpu_that_offers_the_tier_is_taken_beside_one_that_does_not():
    asked = replace(builders.fraction(), isolation=IsolationWish(DRIVER, HOOK))
    placement = Planner().place(builders.snapshot(node("n0", 1, 2)), PlacementRequest(asked))

    assert placement is not None
    assert placement.allocation.gpus == (1,)


@pytest.mark.parametrize(
    ("asked", "limits", "reason"),
    [
        pytest.param(
            IsolationWish(NONE, NONE), QuotaLimits(), Reason.ISOLATION_NOT_ALLOWED, id="opt-out"
        ),
        pytest.param(
            IsolationWish(HOOK, HOOK),
            QuotaLimits(isolation=IsolationRules(Isolation(DRIVER, HOOK))),
            Reason.ISOLATION,
            id="less-than-the-floor",
        ),
        pytest.param(
            IsolationWish(),
            QuotaLimits(isolation=IsolationRules(unreadable="unread")),
            Reason.ISOLATION_NOT_ALLOWED,
            id="rules-unreadable",
        ),
    ],
)
def test_namespace_decides_what_its_pods_may_go_without(asked, limits, reason):
    state = NodeState.empty(node("n0", 1))
    request = replace(builders.fraction(), isolation=asked)

    assert not feasible(state, request, limits)
    assert explain(state, request, limits).reason is reason


def test_whole_gpus_need_no_isolation_whatever_the_namespace_demands():
    state = NodeState.empty(node("n0", 0))
    limits = QuotaLimits(isolation=IsolationRules(HOOKED))

    assert feasible(state, builders.whole(), limits)
    assert not feasible(state, builders.fraction(), limits)
