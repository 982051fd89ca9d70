"""What leftovers are worth, checked against known mixes and against trying everything."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.placement.scoring.cutting_stock import Knapsack, worth_of_leftovers

# Shares of a production mix, in percent of a GPU, and how many pods ask for each.
MIX = {
    (5, 0): 7, (11, 0): 24, (14, 0): 1, (16, 0): 74, (22, 0): 62, (23, 0): 140, (27, 0): 4,
    (29, 0): 1, (32, 0): 328, (33, 0): 7, (35, 0): 6, (37, 0): 47, (44, 0): 2, (46, 0): 128,
    (47, 0): 750, (48, 0): 19, (55, 0): 72, (59, 0): 75, (65, 0): 253, (81, 0): 1078,
}  # fmt: skip


@pytest.mark.parametrize(
    ("leftover", "worth"),
    [(16, 0), (23, 1 / 4), (29, 1 / 4), (32, 1 / 3), (37, 1 / 3), (46, 1 / 2), (48, 1 / 2),
     (55, 2 / 3), (65, 2 / 3), (81, 1), (100, 1)],
)  # fmt: skip
def test_leftovers_of_a_production_mix(leftover, worth):
    table = worth_of_leftovers(list(MIX), list(MIX.values()), (100, 0))

    assert table[leftover, 0] == pytest.approx(worth, abs=1e-6)


def test_leftover_without_memory_is_worth_nothing_to_shares_that_need_both():
    table = worth_of_leftovers([(50, 16)], [10], (100, 32))

    assert table[50, 16] == pytest.approx(0.5)
    assert table[100, 15] == table[49, 32] == 0


def test_memory_alone_fills_what_compute_leaves():
    table = worth_of_leftovers([(100 - 1, 16), (0, 16)], [10, 10], (100, 32))

    assert table[0, 16] + table[99, 16] == pytest.approx(1)


def brute(sizes, values, gpu):
    best = 0.0
    counts = [range(1 + min(c // s for c, s in zip(gpu, size, strict=True) if s)) for size in sizes]
    for picks in product(*counts):
        used = [sum(n * size[d] for n, size in zip(picks, sizes, strict=True)) for d in (0, 1)]
        if used[0] <= gpu[0] and used[1] <= gpu[1]:
            best = max(best, sum(n * v for n, v in zip(picks, values, strict=True)))
    return best


sizes_ = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5)).filter(any), min_size=1, max_size=3, unique=True
)


@given(sizes_, st.lists(st.floats(0.1, 1), min_size=3, max_size=3))
def test_knapsack_is_what_trying_everything_finds(sizes, values):
    values = values[: len(sizes)]
    table = Knapsack(sizes, (10, 5)).fill(np.array(values))

    assert table[10, 5] == pytest.approx(brute(sizes, values, (10, 5)))
    assert table[6, 3] == pytest.approx(brute(sizes, values, (6, 3)))


@given(sizes_, st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_worth_grows_with_the_leftover_and_a_whole_gpu_is_worth_one(sizes, demand):
    table = worth_of_leftovers(sizes, demand[: len(sizes)], (10, 5))

    assert table[-1, -1] == pytest.approx(1)
    assert (np.diff(table, axis=0) >= -1e-9).all()
    assert (np.diff(table, axis=1) >= -1e-9).all()
