"""Fragmentation gradient descent: prefer the move that makes the least idle GPU unusable.

How much of a node's idle GPU a workload cannot use is summed case by case, in the workload's
order, because the sign of rounding noise decides between neighbouring integer scores and the
published curves depend on it.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slicewise.model import FULL, model_admitted
from slicewise.placement.row_cache import RowCache
from slicewise.placement.scoring_input import ScoringInput
from slicewise.placement.tables import Bools, Floats, Ints, NodeTables, TableView
from slicewise.placement.workload import PodShape, Workload

_BLOCK: Final = 512
_REMEMBERED: Final = 128
_UNKNOWN: Final = -1
_DOUBTFUL: Final = 1e-9


class WorkloadColumns:
    """The workload's shapes of pods as columns: those that want GPUs and those that want none."""

    def __init__(self, workload: Workload) -> None:
        self.of = workload.target
        tasks = [(shape, weight) for shape, weight in self.of if shape.count]
        others = [(shape, weight) for shape, weight in self.of if not shape.count]
        self.sizes = sorted({shape.cores for shape, _ in tasks})
        self.size = np.array([self.sizes.index(shape.cores) for shape, _ in tasks], dtype=np.int64)
        self.count = _column([shape.count for shape, _ in tasks])
        self.cpu = _column([shape.cpu for shape, _ in tasks])
        self.weight = _weights(tasks)
        self.idle_cpu = _column([shape.cpu for shape, _ in others])
        self.idle_weight = _weights(others)
        self.model_lists = [(shape.models, shape.models_refused) for shape, _ in tasks]
        self.choosy = np.array(
            [bool(some or none) for some, none in self.model_lists], dtype=np.bool_
        )


def _column(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64).reshape(-1, 1)


def _weights(tasks: Sequence[tuple[PodShape, float]]) -> Floats:
    return np.array([weight for _, weight in tasks], dtype=np.float64).reshape(-1, 1)


@dataclass(slots=True)
class FragmentationState:
    """Nodes as fragmentation sees them: idle GPU, free CPU, and GPUs by the sizes asked for."""

    idle: Ints  # (states,), percent
    cpu: Ints  # (states,)
    small: Ints  # (sizes, states), percent on GPUs with less free than the size
    large: Ints  # (sizes, states), GPUs with at least the size free
    node_class: Ints  # (states,)

    def take(self, rows: Ints) -> "FragmentationState":
        return FragmentationState(
            self.idle[rows],
            self.cpu[rows],
            self.small[:, rows],
            self.large[:, rows],
            self.node_class[rows],
        )

    def put(self, rows: Ints, part: "FragmentationState") -> None:
        self.idle[rows], self.cpu[rows] = part.idle, part.cpu
        self.node_class[rows] = part.node_class
        self.small[:, rows], self.large[:, rows] = part.small, part.large


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
    if not len(amounts):
        return np.zeros(amounts.shape[1])
    total: Floats = np.add.accumulate(amounts, axis=0)[-1]
    return total


def grade(before: Floats, after: Floats) -> Floats:
    """The integer score 0 to 100 of a change in fragmentation; 50 is no change."""
    change = (before - after) / 1000.0
    with np.errstate(over="ignore"):
        score = 100.0 * (1.0 / (1.0 + np.exp(-change)))
    for at in np.flatnonzero(np.abs(score - np.rint(score)) < _DOUBTFUL).tolist():
        # Vectorised exponentials differ in the last bit between machines; here it decides.
        score[at] = 100.0 * (1.0 / (1.0 + math.exp(-change[at])))
    return np.trunc(score)


class FragmentationTable:
    """Fragmentation of every row of the tables under one workload, kept in step with them."""

    def __init__(self, tables: NodeTables, workload: Workload) -> None:
        self.tables = tables
        self.workload = workload
        self.target = WorkloadColumns(workload)
        self.state = self.measure(tables.view.take(np.zeros(0, dtype=np.int64)))
        self.denied: Bools = np.zeros((0, 0), dtype=np.bool_)
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
        room_of = self.view.free_cores
        first = self._first_of_equals(cores)
        at, gpus = np.nonzero(first)
        room = room_of[at, gpus]
        left = room - cores
        moved = self.state.take(at)
        moved.idle -= cores
        moved.cpu -= cpu
        sizes = np.array(self.fragments.target.sizes, dtype=np.int64).reshape(-1, 1)
        was_large, is_large = room >= sizes, left >= sizes
        moved.large -= was_large & ~is_large
        moved.small += np.where(is_large, 0, left) - np.where(was_large, 0, room)
        values = np.full(room_of.shape, _UNKNOWN, dtype=np.int8, order="F")
        values[at, gpus] = grade(self.before[at], self.fragments.amounts(moved)).astype(np.int8)
        idle = np.where(first & self.view.whole, values, _UNKNOWN).max(axis=1, initial=_UNKNOWN)
        return np.where(self.view.whole, idle[:, None], values)

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
    return _move(fragments, scoring.view).rows(count, scoring.cpu).astype(np.float64)


def fgd_gpu(scoring: ScoringInput) -> Floats:
    """Scores of GPUs, for one share."""
    fragments, group = _fragments(scoring), scoring.group
    cores = 0 if group is None else group.cores
    if scoring.fresh:
        return fragments.grades(1, cores, scoring.cpu).astype(np.float64)
    return _move(fragments, scoring.view).gpus(cores, scoring.cpu).astype(np.float64)


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
