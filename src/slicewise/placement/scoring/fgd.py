"""Fragmentation gradient descent: prefer the move that makes the least idle GPU unusable.

How much of a node's idle GPU a workload cannot use is summed case by case, in the workload's
order, because the sign of rounding noise decides between neighbouring integer scores and the
published curves depend on it. Where noise cannot decide, an estimate by other sums will do.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slicewise.model import FULL, model_admitted
from slicewise.placement.row_cache import RowCache
from slicewise.placement.scoring.fgd_estimate import (
    FragmentationState,
    MoveEstimate,
    WorkloadColumns,
)
from slicewise.placement.scoring.scores import tight_gpu
from slicewise.placement.scoring.scoring_input import ScoringInput
from slicewise.placement.tables import Bools, Floats, Ints, NodeTables, TableView
from slicewise.placement.workload import Workload

_BLOCK: Final = 512
_REMEMBERED: Final = 128
_UNKNOWN: Final = -1
_DOUBTFUL: Final = 1e-9
# How near an integer an estimated score may be wrong: rounding noise is less by three orders.
_ESTIMATED: Final = 1e-7
# GPUs times shapes of pods that one decision looks at on a cluster of more than so many GPUs:
# five thousand nodes of eight with twenty shapes.
_MANY_GPUS: Final = 16_000
_MOST_CELLS: Final = 800_000
_LEAST_SHAPES: Final = 16


def fragmentation(state: FragmentationState, target: WorkloadColumns, denied: Bools) -> Floats:
    """Thousandths of a GPU that an average pod of the workload cannot use, per state.

    `denied` says, per choosy shape of pod and node class, that no GPU is admitted.
    """
    blocks = range(0, len(state.idle), _BLOCK)
    amounts = [
        _amounts(state.take(np.arange(at, min(at + _BLOCK, len(state.idle)))), target, denied)
        for at in blocks
    ]
    return np.concatenate(amounts) if amounts else np.zeros(0)


def _amounts(state: FragmentationState, target: WorkloadColumns, denied: Bools) -> Floats:
    idle = state.idle * 10.0
    gpu = state.large[target.size] >= target.count
    cpu = state.cpu >= target.cpu
    lost = target.weight * idle
    stranded = target.weight * (state.small[target.size] * 10.0)
    lack_gpu = np.where(cpu, np.where(gpu, stranded, lost), 0.0)
    lack_both = np.where(gpu | cpu, 0.0, lost)
    lack_cpu = np.where(gpu & ~cpu, lost, 0.0)
    no_access = np.zeros(len(idle))
    if target.choosy.any():
        refused = denied[:, state.node_class]
        no_access = _in_order(np.where(refused, lost, 0.0))
        for case in (lack_gpu, lack_both, lack_cpu):
            case[refused] = 0.0
    spare = target.idle_weight * idle
    enough = state.cpu >= target.idle_cpu
    return (
        _in_order(lack_both)
        + _in_order(lack_gpu)
        + _in_order(lack_cpu)
        + _in_order(np.where(enough, spare, 0.0))
        + _in_order(np.where(enough, 0.0, spare))
        + no_access
    )


def _in_order(amounts: Floats) -> Floats:
    """Column sums, added strictly from the first row to the last."""
    total: Floats = np.zeros(amounts.shape[1])
    for row in amounts:
        total += row
    return total


def grade(before: Floats, after: Floats) -> Floats:
    """The integer score 0 to 100 of a change in fragmentation; 50 is no change."""
    change = (before - after) / 1000.0
    score = _score(change)
    for at in np.flatnonzero(np.abs(score - np.rint(score)) < _DOUBTFUL).tolist():
        # Vectorised exponentials differ in the last bit between machines; here it decides.
        score[at] = 100.0 * (1.0 / (1.0 + math.exp(-change[at])))
    return np.trunc(score)


def _score(change: Floats) -> Floats:
    with np.errstate(over="ignore"):
        score: Floats = 100.0 * (1.0 / (1.0 + np.exp(-change)))
    return score


class FragmentationTable:
    """Fragmentation of every row of the tables under one workload, kept in step with them."""

    def __init__(self, tables: NodeTables, workload: Workload) -> None:
        self.tables = tables
        self.workload = workload
        gpus = tables.view.whole.size
        most = max(_LEAST_SHAPES, _MOST_CELLS // gpus) if gpus > _MANY_GPUS else None
        self.target = WorkloadColumns(workload, most)
        self.state = self.measure(tables.view.take(np.zeros(0, dtype=np.int64)))
        self.denied: Bools = np.zeros((0, 0), dtype=np.bool_)
        self.estimate: MoveEstimate | None = None
        self.amount: Floats = np.zeros(0)
        self._cache = RowCache(tables, self._rebuild)
        self._grades: OrderedDict[tuple[int, int | None, int], ScoreCache] = OrderedDict()

    def refresh(self) -> None:
        self._cache.refresh()

    def measure(self, view: TableView) -> FragmentationState:
        """Nodes of a view as fragmentation sees them."""
        free = np.maximum(view.free_cores, 0)
        small = np.zeros((len(self.target.sizes), len(view.rows)), dtype=np.int64)
        large = np.zeros_like(small)
        for at, size in enumerate(self.target.sizes):
            fits = view.free_cores >= size
            large[at] = fits.sum(axis=1)
            small[at] = np.where(fits, 0, free).sum(axis=1)
        return FragmentationState(
            view.idle.copy(), view.cpu.copy(), small, large, view.node_class.copy()
        )

    def amounts(self, state: FragmentationState) -> Floats:
        return fragmentation(state, self.target, self.denied)

    def grades(self, count: int, cores: int | None, cpu: int) -> NDArray[np.int8]:
        """Scores of every GPU for a share of this size, or of every row for whole GPUs."""
        key = (count, cores, cpu)
        grades = self._grades.get(key)
        if grades is None:
            grades = self._grades[key] = ScoreCache(self, *key)
            if len(self._grades) > _REMEMBERED:
                self._grades.popitem(last=False)
        self._grades.move_to_end(key)
        return grades.current()

    def _rebuild(self, rows: Ints) -> None:
        view = self.tables.view
        if len(rows) < len(self.tables.names):
            part = self.measure(view.take(rows))
            self.state.put(rows, part)
            self.amount[rows] = self.amounts(part)
            return
        self.denied = np.array(
            [
                [
                    choosy and not any(model_admitted(gpu.model, *lists) for gpu in each.gpus)
                    for each in self.tables.classes
                ]
                for lists, choosy in zip(self.target.model_lists, self.target.choosy, strict=True)
            ],
            dtype=np.bool_,
        ).reshape(len(self.target.model_lists), len(self.tables.classes))
        self.estimate = MoveEstimate.of(self.target, self.denied)
        self.state = self.measure(view)
        self.amount = self.amounts(self.state)


class ScoreCache:
    """Scores for one shape of pod, rescored only where rows changed."""

    def __init__(
        self, fragments: FragmentationTable, count: int, cores: int | None, cpu: int
    ) -> None:
        self._fragments = fragments
        self._count, self._cores, self._cpu = count, cores, cpu
        self._cache = RowCache(fragments.tables, self._rebuild)
        self._values = np.zeros((0, 0), dtype=np.int8)

    def current(self) -> NDArray[np.int8]:
        self._cache.refresh()
        return self._values

    def _rebuild(self, rows: Ints) -> None:
        fragments = self._fragments
        view = fragments.tables.view
        everything = len(rows) == len(view.rows)
        move = Move(
            fragments,
            view if everything else view.take(rows),
            fragments.state.take(rows),
            fragments.amount[rows],
        )
        if self._cores is None:
            values = move.rows(self._count, self._cpu)
        else:
            values = move.gpus(self._cores, self._cpu)
        if everything:
            self._values = values
        else:
            self._values[rows] = values


@dataclass(frozen=True, slots=True)
class Move:
    """Rows about to take a pod: their arrays, and their fragmentation before."""

    fragments: FragmentationTable
    view: TableView
    state: FragmentationState
    before: Floats  # (nodes,)

    def rows(self, count: int, cpu: int) -> NDArray[np.int8]:
        """Scores of rows for pods that leave no choice of GPU: whole GPUs, or no GPU at all."""
        state = self.state
        moved = FragmentationState(
            state.idle - FULL * count,
            state.cpu - cpu,
            state.small,
            state.large - count,
            state.node_class,
        )
        return grade(self.before, self.fragments.amounts(moved)).astype(np.int8)

    def gpus(self, cores: int, cpu: int) -> NDArray[np.int8]:
        """Scores of GPUs for one share; a node's idle GPUs all score as the first of them."""
        first = self._first_of_equals(cores)
        # Column by column, as the arrays lie in memory.
        gpus, at = np.nonzero(first.T)
        room = self.view.free_cores.T[gpus, at]
        values = np.full(first.shape, _UNKNOWN, dtype=np.int8, order="F")
        values.T[gpus, at] = self._grade(at, room, cores, cpu)
        idle = np.where(first & self.view.whole, values, _UNKNOWN).max(axis=1, initial=_UNKNOWN)
        return np.where(self.view.whole, idle[:, None], values)

    def _grade(self, at: Ints, room: Ints, cores: int, cpu: int) -> NDArray[np.int8]:
        """Scores of GPUs with this much room on these rows; exact only where it matters."""
        estimate = self.fragments.estimate
        if estimate is None or len(at) < _BLOCK:
            return self._grade_exactly(at, room, cores, cpu)
        after = estimate.amounts(self.state, at, room, cores=cores, cpu=cpu)
        score = _score((self.before[at] - after) / 1000.0)
        grades = np.trunc(score).astype(np.int8)
        near = np.flatnonzero(np.abs(score - np.rint(score)) < _ESTIMATED)
        grades[near] = self._grade_exactly(at[near], room[near], cores, cpu)
        return grades

    def _grade_exactly(self, at: Ints, room: Ints, cores: int, cpu: int) -> NDArray[np.int8]:
        left = room - cores
        moved = self.state.take(at)
        moved.idle -= cores
        moved.cpu -= cpu
        sizes = np.array(self.fragments.target.sizes, dtype=np.int64).reshape(-1, 1)
        was_large, is_large = room >= sizes, left >= sizes
        moved.large -= was_large & ~is_large
        moved.small += np.where(is_large, 0, left) - np.where(was_large, 0, room)
        return grade(self.before[at], self.fragments.amounts(moved)).astype(np.int8)

    def _first_of_equals(self, cores: int) -> Bools:
        """The GPUs worth trying: every GPU in use, and the first that nobody uses."""
        ok = self.view.free_cores >= cores
        seen = np.zeros(len(ok), dtype=np.bool_)
        for gpu in range(ok.shape[1]):
            idle = self.view.whole[:, gpu]
            ok[:, gpu] &= ~(idle & seen)
            seen |= idle
        return ok


def fgd(scoring: ScoringInput) -> Floats:
    """Scores of rows, for whole GPUs or for no GPU."""
    fragments, group = _fragments(scoring), scoring.group
    count = 0 if group is None else group.count
    if scoring.fresh:
        return fragments.grades(count, None, scoring.cpu).astype(np.float64)
    if _too_many(fragments, scoring):
        return np.zeros(len(scoring.view.rows))
    return _move(fragments, scoring.view).rows(count, scoring.cpu).astype(np.float64)


def fgd_gpu(scoring: ScoringInput) -> Floats:
    """Scores of GPUs, for one share."""
    fragments, group = _fragments(scoring), scoring.group
    cores = 0 if group is None else group.cores
    if scoring.fresh:
        return fragments.grades(1, cores, scoring.cpu).astype(np.float64)
    if _too_many(fragments, scoring):
        return tight_gpu(scoring)
    return _move(fragments, scoring.view).gpus(cores, scoring.cpu).astype(np.float64)


def _too_many(fragments: FragmentationTable, scoring: ScoringInput) -> bool:
    """Whether a further group of shares would cost more than its order is worth."""
    return scoring.view.whole.size * len(fragments.target.of) > _MOST_CELLS // 4


def _move(fragments: FragmentationTable, view: TableView) -> Move:
    state = fragments.measure(view)
    return Move(fragments, view, state, fragments.amounts(state))


def _fragments(scoring: ScoringInput) -> FragmentationTable:
    tables = scoring.tables
    fragments = tables.derived.get("fragments")
    if not isinstance(fragments, FragmentationTable) or fragments.workload is not scoring.workload:
        fragments = tables.derived["fragments"] = FragmentationTable(tables, scoring.workload)
    fragments.refresh()
    return fragments
