"""Tiers: their order, what is demanded of GPUs, and what is promised on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import (
    HOOKED,
    NO_RULES,
    NO_WISH,
    STRONGEST,
    UNLIMITED_USE,
    Isolation,
    IsolationRules,
    IsolationTier,
    IsolationWish,
    OfferedIsolation,
    code_meets,
    least_isolation,
    promise,
)

NONE, HOOK, MPS, DRIVER = IsolationTier
HOOK_ONLY = OfferedIsolation((HOOK,), (HOOK,))
EVERYTHING = OfferedIsolation((HOOK, MPS, DRIVER), (HOOK, MPS))

tiers = st.sampled_from(list(IsolationTier))
compute_tiers = st.sampled_from((NONE, HOOK, MPS))
isolations = st.builds(Isolation, tiers, compute_tiers)
wishes = st.builds(IsolationWish, st.none() | tiers, st.none() | compute_tiers)
offers = st.builds(
    OfferedIsolation,
    st.sets(st.sampled_from((HOOK, MPS, DRIVER))).map(tuple),
    st.sets(st.sampled_from((HOOK, MPS))).map(tuple),
)


@given(offers, isolations)
def test_code_meets_what_the_best_tiers_meet(offered, least):
    best = offered.best

    assert code_meets(offered.code, least) == (
        best.memory >= least.memory and best.compute >= least.compute
    )


@given(st.lists(st.sampled_from((0, 30, 100)), min_size=1, max_size=4), wishes, offers, isolations)
def test_promise_is_offered_and_never_below_what_was_demanded(cores, wish, offered, floor):
    rules = IsolationRules(floor, may_opt_out=True)
    least = least_isolation(cores, wish, rules)
    promised = promise([(each, offered) for each in cores], wish=wish, rules=rules)

    if promised is None:
        assert set(cores) == {100}
        return
    assert promised.memory in (NONE, *offered.memory)
    assert promised.compute in (NONE, *offered.compute)
    if code_meets(offered.code, least):
        assert promised.memory >= least.memory
        assert promised.compute >= least.compute


@pytest.mark.parametrize(
    ("wish", "offered", "usual", "promised"),
    [
        pytest.param(NO_WISH, EVERYTHING, STRONGEST, "driver/hook", id="strongest"),
        pytest.param(NO_WISH, EVERYTHING, HOOKED, "hook/hook", id="usual-of-gpu-manager"),
        pytest.param(NO_WISH, HOOK_ONLY, UNLIMITED_USE, "none/none", id="switched-off"),
        pytest.param(NO_WISH, OfferedIsolation(), STRONGEST, "none/none", id="nothing-offered"),
        pytest.param(
            IsolationWish(MPS, HOOK),
            OfferedIsolation((HOOK, MPS), (HOOK,)),
            STRONGEST,
            "mps/hook",
            id="mps-by-name",
        ),
        pytest.param(IsolationWish(NONE, NONE), EVERYTHING, STRONGEST, "none/none", id="opt-out"),
        pytest.param(
            IsolationWish(DRIVER), EVERYTHING, HOOKED, "driver/hook", id="more-than-usual"
        ),
    ],
)
def test_promise_of_a_share(wish, offered, usual, promised):
    assert str(promise([(30, offered)], wish=wish, usual=usual)) == promised


def test_whole_gpus_demand_nothing_and_memory_alone_no_compute():
    wish = IsolationWish(HOOK, HOOK)

    assert least_isolation([100, 100], wish, NO_RULES) == UNLIMITED_USE
    assert least_isolation([0, 100], wish, NO_RULES) == Isolation(HOOK, NONE)
    assert least_isolation([30], wish, NO_RULES) == HOOKED


@pytest.mark.parametrize(
    ("wish", "rules", "forbidden"),
    [
        (IsolationWish(NONE, NONE), IsolationRules(), True),
        (IsolationWish(NONE, NONE), IsolationRules(may_opt_out=True), False),
        (IsolationWish(NONE, NONE), IsolationRules(HOOKED, may_opt_out=True), True),
        (IsolationWish(None, NONE), IsolationRules(Isolation(HOOK), may_opt_out=True), False),
        (IsolationWish(HOOK, HOOK), IsolationRules(STRONGEST), False),
        (NO_WISH, IsolationRules(), False),
    ],
)
def test_opt_out_needs_the_namespace_to_allow_it(wish, rules, forbidden):
    assert rules.forbids(wish) is forbidden
