"""How much of a cluster any policy could allocate at best: cutting-stock bounds.

Pods are cut into single GPUs and GPUs are pooled by the pods they admit, so CPU, memory and
the grouping of GPUs into nodes are forgotten: no policy can do better than these bounds say.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from slicewise.model import FULL, model_admitted
from slicewise.placement.tables import Floats
from slicewise.sim.trace import Trace

_TOLERANCE: Final = 1e-9
# Right-hand sides are moved this little, each differently, so that no two bases tie.
_NUDGE: Final = 1e-7
_STEPS: Final = 20000


@dataclass(frozen=True, slots=True)
class Bounds:
    """In percent of capacity: the load that can be accepted whole, and the most at 100 percent."""

    lossless: float
    most: float


@dataclass(frozen=True, slots=True)
class _Stock:
    """Sizes in percent with how many GPUs' worth are asked for, and pools of GPUs."""

    sizes: tuple[int, ...]
    wanted: tuple[int, ...]
    pools: tuple[tuple[int, frozenset[int]], ...]

    @property
    def gpus(self) -> int:
        return sum(count for count, _ in self.pools)

    @property
    def demand(self) -> int:
        return sum(size * count for size, count in zip(self.sizes, self.wanted, strict=True))


def bound(trace: Trace) -> Bounds:
    """The bounds for pods that come in the proportions of the trace."""
    stock = _read_stock(trace)
    if not stock.sizes or not stock.gpus:
        return Bounds(0.0, 0.0)
    scale = FULL * stock.gpus / stock.demand
    return Bounds(
        lossless=100.0 * _Lossless(stock, scale).solve(),
        most=_Most(stock, scale).solve() / stock.gpus,
    )


def _read_stock(trace: Trace) -> _Stock:
    gpus = Counter(gpu.model for node in trace.nodes for gpu in node.gpus)
    wanted: Counter[tuple[int, frozenset[str]]] = Counter()
    for kind, pods in trace.workload.counts.items():
        if kind.count and kind.cores:
            admitted = (
                model for model in gpus if model_admitted(model, kind.models, kind.models_refused)
            )
            wanted[kind.cores, frozenset(admitted)] += kind.count * pods
    items = sorted(wanted, key=lambda item: (item[0], sorted(item[1])))
    pools: Counter[frozenset[int]] = Counter()
    for model, count in gpus.items():
        pools[frozenset(at for at, (_, admitted) in enumerate(items) if model in admitted)] += count
    return _Stock(
        tuple(size for size, _ in items),
        tuple(wanted[item] for item in items),
        tuple(sorted(((count, items) for items, count in pools.items()), key=repr)),
    )


class _Program(ABC):
    """Maximise value over patterns of one GPU each, found only when they are worth entering.

    The rows are one limit per size and one per pool; every basis starts from their slacks.
    """

    def __init__(self, stock: _Stock, limits: Floats) -> None:
        self.stock = stock
        self.items = len(stock.sizes)
        pools = np.array([count for count, _ in stock.pools], dtype=np.float64)
        self.limits = np.concatenate([limits, pools])
        rows = len(self.limits)
        self.limits = self.limits + _NUDGE * np.arange(1, rows + 1) / rows
        self._basis = np.eye(rows)
        self._worth = np.zeros(rows)

    def solve(self) -> float:
        for _ in range(_STEPS):
            duals: Floats = np.linalg.solve(self._basis.T, self._worth).astype(np.float64)
            held = np.linalg.solve(self._basis, self.limits)
            column, worth = self._best_column(duals)
            if worth - duals @ column <= _TOLERANCE:
                return float(self._worth @ held)
            change = np.linalg.solve(self._basis, column)
            ratios = np.where(change > _TOLERANCE, held / np.maximum(change, _TOLERANCE), np.inf)
            out = int(ratios.argmin())
            self._basis[:, out], self._worth[out] = column, worth
        raise ArithmeticError(f"no optimum after {_STEPS} steps")

    @abstractmethod
    def candidates(self, duals: Floats) -> list[tuple[Floats, float]]:
        """Columns that might enter, with what one unit of each is worth."""

    def _best_column(self, duals: Floats) -> tuple[Floats, float]:
        slack = int(duals.argmin())
        unit = np.zeros(len(duals))
        unit[slack] = 1.0
        found = [(unit, 0.0), *self.candidates(duals)]
        return max(found, key=lambda entry: entry[1] - float(duals @ entry[0]))

    def patterns(self, values: Floats) -> list[tuple[int, Floats]]:
        """For every pool, how many of each size its most valuable GPU holds."""
        return [
            (at, _fill_gpu(self.stock.sizes, values, admitted))
            for at, (_, admitted) in enumerate(self.stock.pools)
        ]

    def column(self, pool: int, counts: Floats) -> Floats:
        """A pattern as a column: what it holds, and one GPU of its pool."""
        column = np.zeros(len(self.limits))
        column[: self.items] = counts
        column[self.items + pool] = 1.0
        return column


class _Most(_Program):
    """The most percent of GPU that can be allocated from what arrives."""

    def __init__(self, stock: _Stock, scale: float) -> None:
        super().__init__(stock, scale * np.array(stock.wanted, dtype=np.float64))
        self._sizes = np.array(stock.sizes, dtype=np.float64)

    def candidates(self, duals: Floats) -> list[tuple[Floats, float]]:
        """A pattern is worth the percent it holds."""
        return [
            (self.column(pool, counts), float(self._sizes @ counts))
            for pool, counts in self.patterns(self._sizes - duals[: self.items])
        ]


class _Lossless(_Program):
    """The largest part of the demand at 100 percent load that can be taken in full."""

    def __init__(self, stock: _Stock, scale: float) -> None:
        super().__init__(stock, np.zeros(len(stock.sizes)))
        self._load = np.zeros(len(self.limits))
        self._load[: self.items] = scale * np.array(stock.wanted, dtype=np.float64)

    def candidates(self, duals: Floats) -> list[tuple[Floats, float]]:
        """Only load is worth anything; patterns make room for it."""
        return [
            (self._load, 1.0),
            *(
                (self.column(pool, -counts), 0.0)
                for pool, counts in self.patterns(duals[: self.items])
            ),
        ]


def _fill_gpu(sizes: tuple[int, ...], values: Floats, admitted: frozenset[int]) -> Floats:
    """How many of each size make the most valuable load of one GPU."""
    useful = [(sizes[at], float(values[at]), at) for at in sorted(admitted) if values[at] > 0.0]
    best, last = [0.0] * (FULL + 1), [-1] * (FULL + 1)
    for room in range(1, FULL + 1):
        best[room], last[room] = best[room - 1], -1
        for size, value, at in useful:
            if size <= room and best[room - size] + value > best[room]:
                best[room], last[room] = best[room - size] + value, at
    counts, room = np.zeros(len(sizes)), int(FULL)
    while room > 0:
        at = last[room]
        if at < 0:
            room -= 1
        else:
            counts[at] += 1.0
            room -= sizes[at]
    return counts
