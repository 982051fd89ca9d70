"""How launches are charged and compute is divided, as pure functions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicewise.nodeagent.limits.control import (
    ALL,
    WINDOW,
    ComputeClaim,
    UseSample,
    correct_scale,
    find_overhead,
    set_ceilings,
    share_compute,
    write_scale,
)


@st.composite
def claims(draw):
    """Containers on one GPU; their guarantees come to no more than the GPU, as grants do."""
    found, left = [], ALL
    for _ in range(draw(st.integers(1, 6))):
        cores = draw(st.integers(1, max(1, left // 2)))
        left -= cores
        found.append(
            ComputeClaim(
                cores,
                draw(st.integers(cores, ALL)),
                draw(st.integers(0, 20_000)),
                draw(st.booleans()),
                draw(st.integers(-1, 1)),
                draw(st.sampled_from((0, 0, 1, 500))),
            )
        )
    return found


@settings(max_examples=80)
@given(claims(), st.integers(0, ALL))
def test_nobody_is_below_the_guarantee_and_nothing_is_lent_twice(claims, unpaced):
    ceilings, parts = set_ceilings(claims, unpaced), share_compute(claims, unpaced)
    guaranteed = sum(min(each.wanted, each.cores) for each in claims)

    for claim, ceiling in zip(claims, ceilings, strict=True):
        assert claim.cores <= ceiling <= max(claim.limit, claim.cores)
    assert sum(parts) + unpaced <= max(ALL, guaranteed + unpaced)


@settings(max_examples=60)
@given(claims())
def test_idle_compute_is_lent_as_long_as_somebody_wants_it(claims):
    parts = share_compute(claims)
    unserved = [each for each, part in zip(claims, parts, strict=True) if part < each.wanted - 1]

    # Each part is cut to a whole hundredth of a percent.
    assert not unserved or sum(parts) >= ALL - len(claims) - 1


@settings(max_examples=60)
@given(claims())
def test_lower_priority_borrows_only_what_higher_ones_do_not_want(claims):
    parts = share_compute(claims)
    lacking = [
        each.priority
        for each, part in zip(claims, parts, strict=True)
        if part < each.wanted - len(claims)
    ]

    for claim, part in zip(claims, parts, strict=True):
        if lacking and claim.priority < max(lacking):
            assert part <= max(claim.cores, 0)


def test_hard_limit_is_its_own_ceiling_beside_an_idle_gpu():
    assert set_ceilings([ComputeClaim(2500, 2500, rate=9000, hungry=True)]) == [2500]


def test_soft_limit_alone_may_use_the_gpu_and_a_busy_neighbour_has_its_guarantee():
    alone = ComputeClaim(2500, ALL, rate=2500, hungry=True)
    neighbour = ComputeClaim(7500, 7500, rate=7400, hungry=True)

    assert set_ceilings([alone]) == [ALL]
    assert set_ceilings([alone, neighbour]) == [2500, 7500]


def test_part_of_an_idle_neighbour_is_lent_and_called_back():
    busy = ComputeClaim(3000, ALL, rate=3000, hungry=True)
    asleep, awake = ComputeClaim(7000, ALL, rate=0), ComputeClaim(7000, ALL, rate=100, hungry=True)

    assert set_ceilings([busy, asleep])[0] == ALL - 200
    assert set_ceilings([busy, awake]) == [3000, 7000]


def test_idle_compute_is_divided_by_weight_and_by_guarantee_without_one():
    by_cores = [ComputeClaim(1000, ALL, hungry=True), ComputeClaim(3000, ALL, hungry=True)]
    by_weight = [
        ComputeClaim(1000, ALL, hungry=True, weight=1),
        ComputeClaim(3000, ALL, hungry=True, weight=1),
    ]

    assert set_ceilings(by_cores) == [2500, 7500]
    assert set_ceilings(by_weight) == [4000, 6000]


def test_use_of_containers_without_a_share_of_compute_is_not_lent():
    assert set_ceilings([ComputeClaim(2000, ALL, hungry=True)], unpaced=3000) == [7000]


def settle(work, share, *, processes=1, seconds=40.0):
    """The use that is reached where a launch really takes `work` times what its timing says.

    The library hands out `share` percent of charged time; charged time is timing by scale.
    """
    scale, samples = 1.0, []
    for _ in range(int(seconds * 10)):
        real = share * work / scale
        seen = int(real / processes) * processes
        samples = [*samples, UseSample(seen, share, processes)][-WINDOW:]
        scale = correct_scale(scale, samples)
    return share * work / scale


@pytest.mark.parametrize("work", [0.6, 0.8, 1.0, 1.3, 1.9])
@pytest.mark.parametrize("share", [10, 25, 50, 75])
def test_scale_settles_where_real_use_is_the_share(work, share):
    # Whole percentages, taken as half a point too low, cannot tell closer than one point.
    assert settle(work, share) == pytest.approx(share, abs=1.1)


@pytest.mark.parametrize("work", [0.6, 1.9])
def test_several_processes_settle_as_near_as_one(work):
    assert settle(work, 25, processes=4) == pytest.approx(25, abs=1.1)


@given(
    st.floats(0.2, 4.0),
    st.lists(
        st.builds(UseSample, st.integers(0, 1600), st.floats(0, 1e6), st.integers(0, 256)),
        max_size=WINDOW,
    ),
)
def test_scale_stays_within_its_bounds_whatever_a_tenant_writes(scale, samples):
    after = correct_scale(scale, samples)

    assert 0.2 <= after <= 4.0
    assert scale * 0.97 <= after <= scale * 1.03


@pytest.mark.parametrize(
    ("seen", "charged"),
    [
        pytest.param(2, 60.0, id="too-little-seen"),
        pytest.param(60, 2.0, id="too-little-charged"),
        pytest.param(24, 24.9, id="within-what-percentages-tell"),
    ],
)
def test_scale_is_left_alone_where_figures_cannot_tell(seen, charged):
    assert correct_scale(1.5, [UseSample(seen, charged)] * WINDOW) == 1.5


def test_scale_is_written_in_parts_of_65536():
    assert write_scale(1.0) == 65536
    assert write_scale(0.2) == 13107


@pytest.mark.parametrize(
    ("samples", "overhead"),
    [([], 0), ([300, 200, 250], 200), ([100, 300, 200, 250], 200), ([-5], 0)],
)
def test_overhead_is_the_least_of_three_samples(samples, overhead):
    assert find_overhead(samples) == overhead


def test_guess_of_what_launches_cost_may_be_far_off():
    scale = timed = 1.0
    for _ in range(1000):
        samples = [UseSample(80, 10)] * WINDOW
        scale = correct_scale(scale, samples, timed=False)
        timed = correct_scale(timed, samples)

    assert (timed, scale) == (4.0, 100.0)


def test_percentages_that_are_rounded_to_the_nearest_are_taken_as_they_are():
    samples = [UseSample(30, 30.4)] * WINDOW

    assert correct_scale(1.0, samples) == 1.0
    assert correct_scale(1.0, samples, rounding=0.0) < 1.0
