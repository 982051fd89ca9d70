"""How many cards a mix of shares needs at least, and what each share is therefore worth.

The cutting-stock problem: cover the demand for every size with as few cards as possible. Its
dual prices say how much of a card one share of a size costs when cards are cut as well as can
be. Solved by column generation on a small basis with plain arithmetic, so that the same demand
gives the same prices everywhere.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from slicewise.placement.tables import Floats, Ints

_ENOUGH: Final = 1e-9
_MOST_ROUNDS: Final = 400


def knapsack(sizes: Sequence[int], values: Sequence[float], capacity: int) -> Floats:
    """The most value that fits into every room from 0 to the capacity."""
    worth = np.zeros(capacity + 1)
    for room in range(1, capacity + 1):
        best = worth[room - 1]
        for size, value in zip(sizes, values, strict=True):
            if size <= room:
                best = max(best, worth[room - size] + value)
        worth[room] = best
    return worth


def _pattern(sizes: Sequence[int], values: Sequence[float], capacity: int) -> Ints:
    """How often each size is cut from a full card by the most valuable way to cut it."""
    worth = knapsack(sizes, values, capacity)
    counts = np.zeros(len(sizes), dtype=np.int64)
    room = capacity
    while room:
        step = next(
            (
                at
                for at, (size, value) in enumerate(zip(sizes, values, strict=True))
                if size <= room
                and worth[room - size] + value >= worth[room] - _ENOUGH
                and value > 0
            ),
            None,
        )
        if step is None:
            room -= 1
            continue
        counts[step] += 1
        room -= sizes[step]
    return counts


def share_prices(sizes: Sequence[int], demand: Sequence[int], capacity: int) -> list[float]:
    """The part of a card that one share of each size is worth, at the least number of cards."""
    count = len(sizes)
    start = [capacity // size for size in sizes]
    inverse = np.diag([1.0 / cuts for cuts in start])
    level = inverse @ np.array(demand, dtype=np.float64)
    prices = inverse.sum(axis=0)
    for _ in range(_MOST_ROUNDS):
        pattern = _pattern(sizes, prices.tolist(), capacity)
        if float(pattern @ prices) <= 1.0 + _ENOUGH:
            break
        column = inverse @ pattern
        ratios = [(level[row] / column[row], row) for row in range(count) if column[row] > _ENOUGH]
        _, out = min(ratios)
        pivot = column[out]
        inverse[out] /= pivot
        level[out] /= pivot
        for row in range(count):
            if row != out and column[row]:
                inverse[row] -= column[row] * inverse[out]
                level[row] -= column[row] * level[out]
        prices = inverse.sum(axis=0)
    return [float(price) for price in prices]
