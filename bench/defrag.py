"""How long a plan of moves takes on a large cluster whose every GPU is used in part."""

import gc
from collections.abc import Iterator, Sequence
from random import Random
from time import thread_time
from typing import Final

from bench.cluster import GPUS
from slicewise.cluster import Assume, Confirm, Ledger, NodeSeen
from slicewise.dialects import DEFAULT
from slicewise.model import (
    WHOLE_GPU,
    Allocation,
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
from slicewise.placement import POLICIES, PlacementRequest, Planner, Workload, shape_of
from slicewise.placement.defrag import DefragOutcome, MovablePod, plan_moves

_MEMORY: Final = MiB(40960)
_HOST: Final = Host(MilliCpu(128000), MiB(768 * 1024))
_FOREVER: Final = float("inf")
_DAY: Final = 86400
# Percents of the pods on a GPU; of the last nobody can move, so that no plan is found.
_SHARED: Final = ((23,), (32,), (47,), (55,), (65,), (23, 32), (16, 47), (11, 22, 32))
_STUCK: Final = ((55,), (59,), (65,), (81,))


def measure_plans(nodes: int) -> Iterator[tuple[str, float]]:
    """The slowest of several plans, moves of the longest, and the time to know of none."""
    shared = _Crowd(nodes, _SHARED)
    found = [shared.plan(gpus) for gpus in (1, 2, 4, 8)]
    plans = [outcome.plan for _, outcome in found if outcome.plan is not None]
    assert len(plans) == len(found), "every one of these has a plan"
    unfound, outcome = _Crowd(nodes, _STUCK).plan(4)
    assert outcome.plan is None, "nobody can move there"
    yield "seconds", max(unfound, *(spent for spent, _ in found))
    yield "moves", max(len(plan.moves) for plan in plans)
    yield "none_seconds", unfound


class _Crowd:
    """A cluster with pods of some of these sizes on every GPU, all of which may be moved."""

    def __init__(self, nodes: int, sizes: Sequence[Sequence[int]]) -> None:
        self._ledger = Ledger(DEFAULT)
        self._movable: list[MovablePod] = []
        chance = Random(42)
        for at in range(nodes):
            name = f"node-{at:05}"
            gpus = tuple(Gpu(i, f"{name}-{i}", "A100", _MEMORY, i) for i in range(GPUS))
            self._ledger.apply(NodeSeen(Node(name, gpus, host=_HOST)))
            for gpu in gpus:
                for percent in chance.choice(sizes):
                    self._add(name, gpu, percent, chance.randrange(_DAY))
        shapes = (shape_of(pod.wanted.request) for pod in self._movable)
        self._planner = Planner(POLICIES["default"], Workload.of(shapes))
        self._planner.warm_up(self._ledger.snapshot())
        gc.collect()

    def plan(self, gpus: int) -> tuple[float, DefragOutcome]:
        """Seconds and outcome of a plan for a pod of so many whole GPUs."""
        wanted = PlacementRequest(_ask(WHOLE_GPU, gpus))
        start = thread_time()
        outcome = plan_moves(self._planner, self._ledger.snapshot(), wanted, self._movable)
        return thread_time() - start, outcome

    def _add(self, node: str, gpu: Gpu, percent: int, seconds: int) -> None:
        uid = f"{len(self._movable):08}"
        request = _ask(Share(Percent(percent), MiB(_MEMORY * percent // 100)), 1)
        slices = (cut(request.containers[0].shares[0], gpu),)
        allocation = Allocation(node, (ContainerAllocation("main", slices),))
        taken = self._ledger.apply(Assume(uid, "bench", uid, request, allocation, _FOREVER))
        if not taken or not self._ledger.apply(Confirm(uid)):
            raise AssertionError(f"the ledger refused {allocation}")
        self._movable.append(MovablePod(uid, node, PlacementRequest(request), seconds))


def _ask(share: Share, gpus: int) -> Request:
    host = Host(MilliCpu(4000 * gpus), MiB(4096 * gpus))
    return Request((ContainerRequest("main", (share,) * gpus),), host=host)
