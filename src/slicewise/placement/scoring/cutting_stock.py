"""What part of a GPU each share is worth when GPUs are cut as well as can be.

The cutting-stock problem: cover the demand for shares of every size with as few GPUs as
possible. A size is percent of compute and levels of memory. The dual prices of the optimum say
what one share costs; the most valuable way to fill a leftover says what the leftover is worth.
Solved by column generation with plain arithmetic on a small basis.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from slicewise.placement.tables import Floats, Ints

Size = tuple[int, int]

_ENOUGH: Final = 1e-9
_MOST_ROUNDS: Final = 300


class Knapsack:
    """The most value that fits into a leftover, for every leftover up to the whole GPU."""

    def __init__(self, sizes: Sequence[Size], gpu: Size) -> None:
        order = sorted(range(len(sizes)), key=lambda at: sizes[at])
        self._gpu = gpu
        self._order = np.array(order, dtype=np.int64)
        self._cores = np.array([sizes[at][0] for at in order], dtype=np.int64)
        self._levels = np.array([sizes[at][1] for at in order], dtype=np.int64)
        self._pad = int(self._levels.max(initial=0))
        columns = np.arange(gpu[1] + 1, dtype=np.int64)
        self._from = self._pad + columns - self._levels[:, None]

    def fill(self, values: Floats) -> Floats:
        """Worth of every leftover, by percent and level, at these values of the sizes."""
        cores, levels = self._gpu
        worth = np.full((cores + 1, levels + 1 + self._pad), -np.inf)
        worth[:, self._pad :] = 0.0
        gains = values[self._order][:, None]
        flat = self._cores == 0
        for room in range(cores + 1):
            row = worth[room, self._pad :]
            if room:
                np.maximum(row, worth[room - 1, self._pad :], out=row)
            fits = (self._cores <= room) & ~flat
            if fits.any():
                above = worth[(room - self._cores[fits])[:, None], self._from[fits]]
                np.maximum(row, (above + gains[fits]).max(axis=0), out=row)
            for at in np.flatnonzero(flat).tolist():
                step = int(self._levels[at])
                for level in range(step, levels + 1):
                    row[level] = max(row[level], row[level - step] + gains[at, 0])
            np.maximum.accumulate(row, out=row)
        return worth[:, self._pad :]

    def best_cut(self, values: Floats) -> Ints:
        """How often each size is cut from a whole GPU by the most valuable way to cut it."""
        worth = self.fill(values)
        counts = np.zeros(len(values), dtype=np.int64)
        cores, levels = self._gpu
        while True:
            for at, size_cores, size_levels in zip(
                self._order.tolist(), self._cores.tolist(), self._levels.tolist(), strict=True
            ):
                if size_cores > cores or size_levels > levels or values[at] <= _ENOUGH:
                    continue
                rest = worth[cores - size_cores, levels - size_levels]
                if rest + values[at] >= worth[cores, levels] - _ENOUGH:
                    counts[at] += 1
                    cores, levels = cores - size_cores, levels - size_levels
                    break
            else:
                if cores and worth[cores - 1, levels] >= worth[cores, levels] - _ENOUGH:
                    cores -= 1
                elif levels and worth[cores, levels - 1] >= worth[cores, levels] - _ENOUGH:
                    levels -= 1
                else:
                    return counts


def worth_of_leftovers(sizes: Sequence[Size], demand: Sequence[int], gpu: Size) -> Floats:
    """What every leftover of a GPU is worth to this demand, in GPUs; a whole GPU is worth 1."""
    knapsack = Knapsack(sizes, gpu)
    worth = knapsack.fill(_prices(knapsack, sizes, demand, gpu))
    worth /= worth[-1, -1]
    return worth


def _prices(knapsack: Knapsack, sizes: Sequence[Size], demand: Sequence[int], gpu: Size) -> Floats:
    """The dual prices of the sizes at the least number of GPUs."""
    cuts = [_at_most(size, gpu) for size in sizes]
    inverse = np.diag([1.0 / count for count in cuts])
    level = np.array([wanted / count for wanted, count in zip(demand, cuts, strict=True)])
    for _ in range(_MOST_ROUNDS):
        prices: Floats = inverse.sum(axis=0)
        cut = knapsack.best_cut(prices)
        if float((cut * prices).sum()) <= 1.0 + _ENOUGH:
            return prices
        column = (inverse * cut).sum(axis=1)
        rows = np.flatnonzero(column > _ENOUGH)
        out = int(rows[np.argmin(level[rows] / column[rows])])
        pivot = column[out]
        inverse[out] /= pivot
        level[out] /= pivot
        column[out] = 0.0
        inverse -= column[:, None] * inverse[out]
        level -= column * level[out]
    prices = np.maximum(inverse.sum(axis=0), 0.0)
    return prices


def _at_most(size: Size, gpu: Size) -> int:
    return min(whole // part for whole, part in zip(gpu, size, strict=True) if part)
