"""What the workload says about the value of things: leftovers, CPU, rare nodes, whole blocks.

Worked out once per workload and set of node classes; decisions only look things up.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from slicewise.model import FULL, fits_empty, model_admitted
from slicewise.placement.node_class import NodeClass
from slicewise.placement.scoring.cutting_stock import Size, worth_of_leftovers
from slicewise.placement.tables import Bools, Floats, Ints, NodeTables
from slicewise.placement.workload import PodShape, Workload

LEVELS: Final = 32
_MOST_SIZES: Final = 24
_MOST_TOLL: Final = 0.4
# CPU asked for per GPU over CPU there is: where CPU begins to run out first, and where it surely
# does. Between the two the price of CPU rises evenly, so that no small change of the mix tips it.
_CPU_TIGHT: Final = 1.01
_CPU_SHORT: Final = 1.05
# Pods to come may want other CPU than pods so far: part of it is taken to be what nodes have.
_CPU_UNKNOWN: Final = 0.5
# The part of demand that is tied to few nodes at which nothing of CPU is taken to be unknown.
_CHOOSY: Final = 0.05


class LeftoverValues:
    """What leftovers are worth, in GPUs, by memory size of the GPU, percent and memory level."""

    def __init__(self, workload: Workload, sizes: Sequence[int]) -> None:
        self.levels = LEVELS if any(shape.memory for shape, _ in workload.wanted) else 0
        known, tables = workload.leftovers, []
        for size in sizes:
            if size not in known:
                known[size] = _worth(workload.wanted, size, self.levels)
            tables.append(known[size])
        self._flat = np.array(tables, dtype=np.float64).ravel()
        self._scale = self.levels / np.array(sizes, dtype=np.float64)

    def of(self, size: Ints, cores: Ints, memory: Ints) -> Floats:
        """The worth of GPUs of these sizes with this much free."""
        at = size * (FULL + 1) + cores
        if self.levels:
            at = at * (self.levels + 1) + (memory * self._scale[size]).astype(np.int64)
        worth: Floats = self._flat.take(at)
        return worth


def prepare_prices(workload: Workload, sizes: Sequence[int]) -> None:
    """Work out what takes long, so that the next decision by these pods need not."""
    LeftoverValues(workload, sizes)


class CpuDemand:
    """CPU that pods want beside a GPU, and how surely the cluster runs out of it first."""

    def __init__(
        self, tables: NodeTables, workload: Workload, gpus: float, *, unknown: float
    ) -> None:
        hosts = [state.node.host for state in tables.states]
        there = sum(len(state.node.gpus) for state in tables.states)
        known = bool(gpus and there) and all(host is not None for host in hosts)
        seen = sum(shape.cpu * count for shape, count in workload.wanted) / gpus if gpus else 0.0
        supply = sum(host.cpu for host in hosts if host is not None) / there if known else 0.0
        self.per_gpu = seen + unknown * max(0.0, supply - seen) if seen else 0.0
        self.shortage = 0.0
        if supply:
            wanted = sum(shape.cpu * count for shape, count in workload.counts.items()) / gpus
            # Where pods with GPUs alone ask for more, room is stranded wherever they go.
            self.shortage = _ramp(wanted / supply) * (1.0 - _ramp(seen / supply))


def _ramp(ratio: float) -> float:
    return min(1.0, max(0.0, (ratio - _CPU_TIGHT) / (_CPU_SHORT - _CPU_TIGHT)))


class PriceTables:
    def __init__(self, tables: NodeTables, workload: Workload) -> None:
        self.workload = workload
        self.epoch = tables.epoch
        memory = tables.view.memory[tables.view.memory > 0]
        self._typical = int(memory.mean()) if len(memory) else 1
        wanted = workload.wanted
        total = sum(self.gpus(shape) * count for shape, count in wanted)
        self.demand = [(shape, self.gpus(shape) * count / total) for shape, count in wanted]
        self.worth = LeftoverValues(workload, tables.sizes)
        self.blocks = self._blocks()
        self.rare, self.rare_share = self._rare(tables)
        # Pods that insist on certain nodes need those kept, more than CPU balanced.
        choosy = float(self.rare_share.sum()) / _CHOOSY
        self.cpu = CpuDemand(tables, workload, total, unknown=_CPU_UNKNOWN * max(0.0, 1.0 - choosy))
        self.position = _positions(tables)
        self.toll = _toll(wanted, len(memory))
        self.filled_nodes = self._filled_nodes(tables)
        self._cpu_steps, self._cpu_refused = self._cpu_refusals()
        self.shares: dict[tuple[int, ...], object] = {}
        """What shares cost on each GPU, by count, percent, memory and CPU; the latest last."""
        self.asked_once: dict[tuple[int, ...], None] = {}
        """The shares that were asked for once so far."""

    def gpus(self, shape: PodShape) -> float:
        """How many GPUs a pod of this shape is, by what it takes most of."""
        return shape.count * max(shape.cores / FULL, min(1.0, shape.memory / self._typical))

    def refused(self, cpu: Ints) -> Floats:
        """The part of demand that nodes with this much free CPU have too little for."""
        refused: Floats = self._cpu_refused.take(np.searchsorted(self._cpu_steps, cpu, "right"))
        return refused

    def _cpu_refusals(self) -> tuple[Ints, Floats]:
        """Amounts of CPU that pods ask for, rising, and the demand each amount still refuses."""
        shares: dict[int, float] = {}
        for shape, share in self.demand:
            shares[shape.cpu] = shares.get(shape.cpu, 0.0) + share
        steps = sorted(shares)
        refused = 1.0 - np.cumsum([0.0, *(shares[step] for step in steps)])
        return np.array(steps, dtype=np.int64), np.maximum(refused, 0.0)

    def _filled_nodes(self, tables: NodeTables) -> bool:
        """Whether pods have asked for as many whole GPUs as the largest node has."""
        largest = max((len(each.gpus) for each in tables.classes), default=0)
        return any(shape.whole and shape.count >= largest for shape, _ in self.demand)

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


def _worth(wanted: Sequence[tuple[PodShape, int]], memory: int, levels: int) -> Floats:
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
        number
        for gpu, number in Counter(node.gpus).items()
        if fits_empty(shape, gpu) and model_admitted(gpu.model, shape.models, shape.models_refused)
    )
    return fitting >= shape.count and (node.host is None or shape.cpu <= node.host.cpu)


def _toll(wanted: Sequence[tuple[PodShape, int]], gpus: int) -> float:
    """What breaking into an idle GPU costs, in GPUs: the chance that no partner comes for it.

    Chance makes the mix of shares differ from its average by about the square root of their
    number, and the more sizes there are, the more partners must match.
    """
    sizes = {(shape.cores, shape.memory) for shape, _ in wanted if shape.cores < FULL}
    if not sizes or not gpus:
        return _MOST_TOLL
    return min(_MOST_TOLL, 1.3 * math.sqrt(len(sizes) / gpus))


def _positions(tables: NodeTables) -> Floats:
    """Every row's place in the order in which nodes are filled, 0 to 1: small nodes first."""
    order = np.lexsort((np.arange(len(tables.names)), tables.view.gpus))
    places = np.empty(len(order))
    places[order] = np.arange(len(order)) / max(1, len(order))
    return places
