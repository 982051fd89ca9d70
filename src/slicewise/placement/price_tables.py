"""What the workload says about the value of things: leftovers, CPU, rare nodes, whole blocks.

Worked out once per workload and set of node classes; decisions only look things up.
"""

import math
from typing import Final

import numpy as np

from slicewise.model import FULL, fits_empty, model_admitted
from slicewise.placement.cutting_stock import Size, worth_of_leftovers
from slicewise.placement.node_class import NodeClass
from slicewise.placement.tables import Bools, Floats, Ints, NodeTables
from slicewise.placement.workload import PodShape, Workload

LEVELS: Final = 32
_MOST_SIZES: Final = 24
_MOST_TOLL: Final = 0.4
_CPU_MARGIN: Final = 1.05


class LeftoverValues:
    """What leftovers are worth, in GPUs, by memory size of the GPU, percent and memory level."""

    def __init__(self, wanted: list[tuple[PodShape, int]], sizes: list[int]) -> None:
        self.levels = LEVELS if any(shape.memory for shape, _ in wanted) else 0
        tables = [_worth(wanted, size, self.levels) for size in sizes]
        self._flat = np.array(tables, dtype=np.float64).ravel()
        self._scale = self.levels / np.array(sizes, dtype=np.float64)

    def of(self, size: Ints, cores: Ints, memory: Ints) -> Floats:
        """The worth of GPUs of these sizes with this much free."""
        at = size * (FULL + 1) + cores
        if self.levels:
            at = at * (self.levels + 1) + (memory * self._scale[size]).astype(np.int64)
        worth: Floats = self._flat.take(at)
        return worth


class PriceTables:
    def __init__(self, tables: NodeTables, workload: Workload) -> None:
        self.workload = workload
        self.epoch = tables.epoch
        memory = tables.view.memory[tables.view.memory > 0]
        self._typical = int(memory.mean()) if len(memory) else 1
        wanted = [(shape, count) for shape, count in sorted(workload.counts.items()) if shape.count]
        total = sum(self.gpus(shape) * count for shape, count in wanted)
        self.demand = [(shape, self.gpus(shape) * count / total) for shape, count in wanted]
        self.cpu_per_gpu = (
            sum(shape.cpu * count for shape, count in wanted) / total if total else 0.0
        )
        self.worth = LeftoverValues(wanted, tables.sizes)
        self.blocks = self._blocks()
        self.rare, self.rare_share = self._rare(tables)
        self.position = _positions(tables)
        self.toll = _toll(wanted, len(memory))
        self.short_of_cpu = _short_of_cpu(tables, workload, total)

    def gpus(self, shape: PodShape) -> float:
        """How many GPUs a pod of this shape is, by what it takes most of."""
        return shape.count * max(shape.cores / FULL, min(1.0, shape.memory / self._typical))

    def _blocks(self) -> list[tuple[int, float]]:
        """Pods that want several whole GPUs: how many, and their share of demand."""
        shares: dict[int, float] = {}
        for shape, share in self.demand:
            if shape.cores == FULL and shape.count > 1:
                shares[shape.count] = shares.get(shape.count, 0.0) + share
        return sorted(shares.items())

    def _rare(self, tables: NodeTables) -> tuple[Bools, Floats]:
        """Which node classes can host pods that most of the cluster cannot, and their demand."""
        classes = tables.classes
        gpus = np.array([len(each.gpus) for each in classes], dtype=np.int64)
        gpus = gpus * np.bincount(tables.view.node_class, minlength=len(classes))
        groups: dict[tuple[bool, ...], float] = {}
        for shape, share in self.demand:
            hosts = tuple(_can_host(each, shape) for each in classes)
            if 2 * int(gpus[np.array(hosts, dtype=np.bool_)].sum()) <= int(gpus.sum()):
                groups[hosts] = groups.get(hosts, 0.0) + share
        keys = sorted(groups)
        rare = np.array(keys, dtype=np.bool_).reshape(len(keys), len(classes))
        return rare, np.array([groups[key] for key in keys])


def _worth(wanted: list[tuple[PodShape, int]], memory: int, levels: int) -> Floats:
    """Leftovers of GPUs of this memory, priced by the shares that fit on them."""
    counts: dict[Size, int] = {}
    for shape, count in wanted:
        if shape.cores < FULL and shape.memory <= memory:
            size = (shape.cores, -(-shape.memory * levels // memory))
            counts[size] = counts.get(size, 0) + count * shape.count
    if not counts:
        return _even(levels)
    ranked = sorted(counts, key=lambda size: (-counts[size] * _extent(size, levels), size))
    sizes = ranked[:_MOST_SIZES]
    return worth_of_leftovers(sizes, [counts[size] for size in sizes], (int(FULL), levels))


def _extent(size: Size, levels: int) -> float:
    return max(size[0] / FULL, size[1] / levels if levels else 0.0)


def _even(levels: int) -> Floats:
    """Leftovers by their size alone, while no workload is known."""
    cores = np.arange(FULL + 1)[:, None] / FULL
    memory = np.arange(levels + 1)[None, :] / levels if levels else np.ones((1, 1))
    even: Floats = np.minimum(cores, memory)
    return even


def _can_host(node: NodeClass, shape: PodShape) -> bool:
    fitting = sum(
        fits_empty(shape, gpu) and model_admitted(gpu.model, shape.models, shape.models_refused)
        for gpu in node.gpus
    )
    return fitting >= shape.count and (node.host is None or shape.cpu <= node.host.cpu)


def _toll(wanted: list[tuple[PodShape, int]], gpus: int) -> float:
    """What breaking into an idle GPU costs, in GPUs: the chance that no partner comes for it.

    Chance makes the mix of shares differ from its average by about the square root of their
    number, and the more sizes there are, the more partners must match.
    """
    sizes = {(shape.cores, shape.memory) for shape, _ in wanted if shape.cores < FULL}
    if not sizes or not gpus:
        return _MOST_TOLL
    return min(_MOST_TOLL, 1.3 * math.sqrt(len(sizes) / gpus))


def _short_of_cpu(tables: NodeTables, workload: Workload, gpus: float) -> bool:
    """Whether pods ask for clearly more CPU per GPU than the cluster has, others included."""
    hosts = [state.node.host for state in tables.states]
    there = sum(len(state.node.gpus) for state in tables.states)
    if not gpus or not there or any(host is None for host in hosts):
        return False
    supply = sum(host.cpu for host in hosts if host is not None) / there
    wanted = sum(shape.cpu * count for shape, count in workload.counts.items()) / gpus
    return wanted > _CPU_MARGIN * supply


def _positions(tables: NodeTables) -> Floats:
    """Every row's place in the order in which nodes are filled, 0 to 1: small nodes first."""
    order = np.lexsort((np.arange(len(tables.names)), tables.view.gpus))
    places = np.empty(len(order))
    places[order] = np.arange(len(order)) / max(1, len(order))
    return places
