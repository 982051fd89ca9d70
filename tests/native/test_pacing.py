"""Pacing on a simulated clock: the library's own code with the agent's own decisions."""

from functools import cache

import pytest

from slicewise_testbed.pacing import (
    SEVERAL,
    SOFT,
    TARGETS,
    SimulatedLoad,
    measure_errors,
    measure_shares,
    simulate,
)


def test_containers_come_to_their_shares_beside_each_other():
    loads = [SimulatedLoad(20, "b"), SimulatedLoad(30, "r"), SimulatedLoad(40, "m")]

    shares = [use.mean for use in simulate(loads, seconds=20)]

    assert shares == pytest.approx([20, 30, 40], abs=1)


def test_same_seed_gives_the_same_figures_and_another_seed_others():
    loads = [SimulatedLoad(25, "v"), SimulatedLoad(25, "i")]

    first, again, other = (simulate(loads, seed=seed, seconds=12) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_ways_of_others_do_not_hold_long_kernels_and_graphs():
    long, graphs = ([SimulatedLoad(25, work)] for work in "bg")

    assert simulate(long, "vcuda", seconds=20)[0].mean > 40
    assert simulate(graphs, "hami", seconds=20)[0].mean > 90


def test_burst_ends_when_the_neighbour_wakes():
    loads = [SimulatedLoad(30, "r", 100), SimulatedLoad(70, "r", 100, 5, 5)]

    borrower, waker = simulate(loads, seconds=20)

    assert min(borrower.seconds[6:]) > 90, "the neighbour sleeps"
    # The second in which it woke is left out.
    assert min(waker.seconds[1:5]) > 63, "nine tenths of its guarantee"


# The figures of the model when it was drawn up, here and below to a tenth: mean and worst error in
# percent of the share.
FIRST = {10: (1.6, 5.5), 25: (0.6, 1.9), 50: (0.2, 0.6), 75: (0.1, 0.5)}
CLASSIC = {
    "vcuda": (238, 145, 65, 22),
    "hami": (280, 149, 65, 22),
    "delta": (213, 131, 60, 22),
    "aimd": (106, 91, 60, 22),
}


@pytest.mark.cluster
@pytest.mark.parametrize("target", TARGETS)
def test_errors_are_those_that_the_model_was_drawn_up_with(target):
    errors = dict(measure_errors(target))

    assert (errors["mean_error"], errors["worst_error"]) == pytest.approx(FIRST[target], abs=1)


@pytest.mark.cluster
@pytest.mark.parametrize("way", CLASSIC)
def test_other_ways_err_as_they_did_when_the_model_was_drawn_up(way):
    errors = [dict(measure_errors(target, way))["mean_error"] for target in TARGETS]

    assert errors == pytest.approx(CLASSIC[way], rel=0.2)


# Percent of the GPU that each container had; where one is almost idle, only the other's is known.
FIRST_SHARES = {
    "four_processes": {"library": [24.9], "vcuda": [49.5], "aimd": [26.2]},
    "three_works": {"library": [50.2], "vcuda": [93.6], "aimd": [97.5]},
    "25m_75t": {"library": [24.9, 71.4], "vcuda": [45.3, 52.3], "aimd": [50.6, 46.9]},
    "10t_30r_20b": {
        "library": [10.2, 29.8, 20.0],
        "vcuda": [14.5, 40.4, 42.1],
        "aimd": [7.8, 28.3, 62.0],
    },
    "30rrr_30r": {"library": [29.0, 30.2], "vcuda": [59.8, 37.7], "aimd": [73.1, 24.4]},
    "40m_40m": {"library": [40.0, 40.0], "vcuda": [48.8, 48.1], "aimd": [48.8, 48.8]},
    "50r_50r": {"library": [48.5, 48.5], "vcuda": [48.8, 48.8], "aimd": [48.8, 48.8]},
    "25b_25t_25r_25g": {
        "library": [24.7, 24.8, 23.9, 23.6],
        "vcuda": [25.7, 23.9, 25.9, 21.9],
        "aimd": [19.3, 23.9, 26.5, 27.6],
    },
    "soft.alone_r": {"library": [97.6], "vcuda": [97.6], "none": [97.6]},
    "soft.alone_t": {"library": [99.6], "vcuda": [99.6], "none": [99.6]},
    "soft.idle_neighbour": {"library": [96.7], "vcuda": [77.9], "none": [96.6]},
    "soft.30b_70t": {"library": [30.1, 67.6], "vcuda": [49.0, 48.4], "none": [50.6, 46.9]},
    "soft.70_wakes_30": {"library": [33.7, 61.4], "vcuda": [26.6, 62.4], "none": [24.9, 72.7]},
}


@cache
def measure_case(case, way="library"):
    return measure_shares({**SEVERAL, **SOFT}[case], way)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("case", "way"), [(case, way) for case, ways in FIRST_SHARES.items() for way in ways]
)
def test_several_at_once_have_what_they_had_when_the_model_was_drawn_up(case, way):
    first = FIRST_SHARES[case][way]
    near = {"abs": 1} if way == "library" else {"rel": 0.2}
    # The first figures are known to a tenth of a point.
    shares = [round(share, 1) for share in measure_case(case, way)]

    assert shares[: len(first)] == pytest.approx(first, **near)


def test_every_case_of_several_is_known():
    assert FIRST_SHARES.keys() == SEVERAL.keys() | SOFT.keys()


@pytest.mark.cluster
def test_every_container_has_its_guarantee_or_its_part_of_a_full_gpu():
    for name, loads in {**SEVERAL, **SOFT}.items():
        shares = measure_case(name)
        # A GPU that is full loses a part of its time to switching between contexts.
        spare = 100 - sum(load.cores for load in loads)
        for load, share in zip(loads, shares, strict=True):
            if load.works != "e" and not load.off_seconds:
                assert share > load.cores * (0.97 if spare else 0.93), name
