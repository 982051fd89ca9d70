"""A made-up cluster, half full: nodes of eight GPUs, and pods shaped like those of openb."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from slicewise.cluster import Assume, Confirm, Ledger, NodeSeen
from slicewise.dialects import DEFAULT
from slicewise.model import (
    Allocation,
    Constraints,
    ContainerAllocation,
    ContainerRequest,
    Gpu,
    Host,
    MiB,
    MilliCpu,
    Node,
    Percent,
    Request,
    Share,
    cut,
)
from slicewise.placement import Workload, shape_of

GPUS: Final = 8
_MODELS: Final = (
    ("NVIDIA A100-SXM4-40GB", 40960),
    ("Tesla V100-SXM2-32GB", 32768),
    ("NVIDIA A10", 24576),
    ("Tesla T4", 16384),
)
# Percent of a GPU, number of GPUs, and how many pods of a thousand ask for that.
_SIZES: Final = (
    (0, 0, 134),
    (5, 1, 2),
    (11, 1, 3),
    (16, 1, 9),
    (22, 1, 8),
    (23, 1, 17),
    (32, 1, 41),
    (37, 1, 6),
    (46, 1, 16),
    (47, 1, 92),
    (55, 1, 9),
    (59, 1, 9),
    (65, 1, 31),
    (81, 1, 132),
    (100, 1, 482),
    (100, 2, 2),
    (100, 4, 2),
    (100, 8, 5),
)
# Cores per GPU, each for a third of the pods.
_CORES: Final = (4, 8, 12)
_SEED: Final = 42
_FOREVER: Final = float("inf")


def _request(percent: int, count: int, cores: int, models: tuple[str, ...] = ()) -> Request:
    containers: tuple[ContainerRequest, ...] = ()
    if count:
        share = Share(Percent(percent), MiB(0 if percent == 100 else 128 * percent))
        containers = (ContainerRequest("main", (share,) * count),)
    return Request(
        containers,
        Constraints(models=models),
        Host(MilliCpu(1000 * cores * max(1, count)), MiB(4096 * cores * max(1, count))),
    )


def shapes() -> tuple[list[Request], list[int]]:
    """Every shape of pod, and how many of three thousand have it."""
    found = [
        (_request(percent, count, cores), weight)
        for percent, count, weight in _SIZES
        for cores in _CORES
    ]
    # One pod in fifty wants a certain model.
    found += [(_request(100, 1, cores, ("A100",)), 20) for cores in _CORES]
    return [request for request, _ in found], [weight for _, weight in found]


def draw_shape(chance: Random) -> Request:
    """A shape that hardly any other pod has: mostly a share, its CPU to the thousandth."""
    percent, count = chance.randrange(1, 100), 1
    if chance.random() < 0.2:
        percent, count = 100, chance.choice((1, 2, 4))
    request = _request(percent, count, 1)
    cpu = MilliCpu(chance.randrange(500, 16000))
    return replace(request, host=replace(request.host, cpu=cpu))


@dataclass(slots=True)
class HalfFull:
    """A ledger with half of the GPUs' compute held."""

    ledger: Ledger
    nodes: list[Node]
    workload: Workload
    chance: Random
    held: list[str] = field(default_factory=list)
    count: int = 0

    def draw(self, requests: Sequence[Request], weights: Sequence[int]) -> Request:
        """A pod by the workload's proportions."""
        return self.chance.choices(requests, weights)[0]

    def assume(self, request: Request, allocation: Allocation) -> str:
        """Charge a pod for good and give its UID."""
        self.count += 1
        uid = f"{self.count:08}"
        taken = self.ledger.apply(Assume(uid, "bench", uid, request, allocation, _FOREVER))
        if not taken or not self.ledger.apply(Confirm(uid)):
            raise AssertionError(f"the ledger refused {allocation}")
        self.held.append(uid)
        return uid


def half_full(nodes: int) -> HalfFull:
    """The cluster with so many nodes."""
    ledger = Ledger(DEFAULT)
    listed = [_node(at) for at in range(nodes)]
    for node in listed:
        ledger.apply(NodeSeen(node))
    requests, weights = shapes()
    workload = Workload(
        {shape_of(each): weight for each, weight in zip(requests, weights, strict=True)}
    )
    cluster = HalfFull(ledger, listed, workload, Random(_SEED))
    for node in listed:
        _fill(cluster, node, requests, weights)
    # What is there to stay would otherwise be looked through again and again.
    gc.collect()
    gc.freeze()
    return cluster


def _node(at: int) -> Node:
    model, memory = _MODELS[at % len(_MODELS)]
    name = f"node-{at:05}"
    return Node(
        name,
        tuple(Gpu(at, f"{name}-{at}", model, MiB(memory), at) for at in range(GPUS)),
        host=Host(MilliCpu(128000), MiB(768 * 1024)),
    )


def _fill(
    cluster: HalfFull, node: Node, requests: Sequence[Request], weights: Sequence[int]
) -> None:
    """Put pods on random GPUs with room until half of the node's compute is held."""
    cores, memory = [100] * GPUS, [int(gpu.memory) for gpu in node.gpus]
    cpu = 128000
    while sum(cores) > 50 * GPUS:
        request = cluster.draw(requests, weights)
        if not request.containers or request.constraints.models:
            continue
        shares = request.containers[0].shares
        pieces = [cut(shares[0], gpu) for gpu in node.gpus]
        room = [
            at
            for at, piece in enumerate(pieces)
            if cores[at] >= piece.cores and memory[at] >= piece.memory
        ]
        if len(room) < len(shares) or cpu < request.host.cpu:
            continue
        chosen = sorted(cluster.chance.sample(room, len(shares)))
        for at in chosen:
            cores[at] -= pieces[at].cores
            memory[at] -= pieces[at].memory
        cpu -= request.host.cpu
        slices = ContainerAllocation("main", tuple(pieces[at] for at in chosen))
        cluster.assume(request, Allocation(node.name, (slices,)))
