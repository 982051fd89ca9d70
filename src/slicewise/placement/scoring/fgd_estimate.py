"""Fragmentation after a share was placed, for very many GPUs, by sums that do not grow with shapes.

A shape of pod that a node can take strands what is free on GPUs too small for it; any other shape
finds all of the node's idle GPU unusable. So fragmentation is idle GPU less, for each size of
share, the weight of shapes the node can take times what is free on GPUs large enough. A share
changes that for the sizes between what its GPU has free before and after, which stand together
when sizes are sorted: running sums over sizes, one set per node, answer for every GPU.

The result differs from the sum in the workload's order by rounding noise alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from slicewise.model import FULL
from slicewise.placement.tables import Bools, Floats, Ints
from slicewise.placement.workload import PodShape, Workload

# Numbers that the weights may take; more kinds of denial than a cluster has.
_MOST_WEIGHTS: Final = 1 << 18


class WorkloadColumns:
    """The workload's shapes of pods as columns: those that want GPUs and those that want none."""

    def __init__(self, workload: Workload, most: int | None = None) -> None:
        self.of = workload.target[:most]
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


@dataclass(frozen=True, slots=True)
class MoveEstimate:
    """What a workload's shapes weigh by what a node has, ready to be looked up."""

    total: float  # all shapes together
    cpus: Ints  # (steps,), amounts of CPU that shapes ask for, rising
    sizes: int
    below: Ints  # (101,), how many sizes are at most so many percent
    kinds: Ints  # (classes,), number of the set of shapes that are denied there
    weights: Floats  # (kinds, sizes, counts, steps + 1), shapes that need no more than that

    @classmethod
    def of(cls, shapes: WorkloadColumns, denied: Bools) -> Self | None:
        """None where there are too many kinds of classes for it to be worth while."""
        count, cpu = shapes.count.ravel(), shapes.cpu.ravel()
        patterns, kinds = np.unique(denied, axis=1, return_inverse=True)
        cpus = np.unique(cpu)
        most = int(count.max(initial=0))
        form = (patterns.shape[1], len(shapes.sizes), most + 1, len(cpus) + 1)
        if not len(count) or np.prod(form) > _MOST_WEIGHTS:
            return None
        weights = np.zeros(form)
        step = np.searchsorted(cpus, cpu) + 1
        for kind in range(form[0]):
            admitted = np.where(patterns[:, kind], 0.0, shapes.weight.ravel())
            np.add.at(weights[kind], (shapes.size, count, step), admitted)
        return cls(
            total=float(shapes.weight.sum() + shapes.idle_weight.sum()),
            cpus=cpus,
            sizes=len(shapes.sizes),
            below=np.searchsorted(shapes.sizes, np.arange(FULL + 1), "right"),
            kinds=kinds.ravel(),
            weights=weights.cumsum(axis=2).cumsum(axis=3),
        )

    def amounts(
        self, nodes: FragmentationState, at: Ints, room: Ints, *, cores: int, cpu: int
    ) -> Floats:
        """Fragmentation of each of the nodes `at` once its GPU with so much room took the share."""
        _, sizes, counts, steps = self.weights.shape
        kind = self.kinds[nodes.node_class] * (sizes * counts)
        base = (kind + np.arange(sizes)[:, None] * counts) * steps
        base += np.searchsorted(self.cpus, nodes.cpu - cpu, "right")
        flat, level = self.weights.ravel(), np.minimum(nodes.large, counts)
        same = flat.take(base + np.minimum(level, counts - 1) * steps)
        fewer = flat.take(base + np.maximum(level - 1, 0) * steps)
        usable = nodes.idle - nodes.small
        kept, lost, changed = map(_running, (same, fewer, (fewer - same) * usable))
        before = (same * usable).sum(axis=0)
        # All tables are looked up by the same place: a row of sizes, and a node.
        count = len(nodes.idle)
        upper, lower = self.below[room] * count + at, self.below[room - cores] * count + at
        able = before[at] - cores * kept.take(lower)
        able += changed.take(upper) - changed.take(lower)
        able -= room * (lost.take(upper) - lost.take(lower))
        amounts: Floats = 10.0 * (self.total * (nodes.idle[at] - cores) - able)
        return amounts


def _running(rows: Floats) -> Floats:
    """Sums of the rows before each row, and of all at the end."""
    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    return sums
