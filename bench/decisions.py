"""How long a decision takes: filter every node, score, choose GPUs, tables kept in step."""

import gc
from collections.abc import Iterator
from functools import lru_cache
from time import thread_time

import numpy as np

from bench.cluster import GPUS, HalfFull, draw_shape, half_full, shapes
from slicewise.cluster import PodGone
from slicewise.model import Request
from slicewise.placement import POLICIES, PlacementRequest, Planner


@lru_cache(maxsize=1)
def _cluster(nodes: int) -> HalfFull:
    return half_full(nodes)


def measure_decisions(policy: str, nodes: int, count: int) -> Iterator[tuple[str, float]]:
    """Decisions of one policy; between two of them a pod has come and another has gone."""
    cluster = _cluster(nodes)
    planner = Planner(POLICIES[policy], cluster.workload)
    requests, weights = shapes()
    start = thread_time()
    planner.tables.sync(cluster.ledger.snapshot())
    built = thread_time() - start
    cold = [_decide(cluster, planner, request) for request in requests]
    warm = [_decide(cluster, planner, cluster.draw(requests, weights)) for _ in range(count)]
    yield "p50_ms", 1e3 * float(np.percentile(warm, 50))
    yield "p99_ms", 1e3 * float(np.percentile(warm, 99))
    yield "cold_ms", 1e3 * float(np.percentile(cold, 50))
    yield "build_ms", 1e3 * built


def measure_cold(nodes: int, count: int) -> Iterator[tuple[str, float]]:
    """First decisions on shapes never seen; the policy's tables are those of the usual pods."""
    cluster = _cluster(nodes)
    for policy in ("default", "fgd"):
        planner = Planner(POLICIES[policy], cluster.workload)
        _decide(cluster, planner, shapes()[0][-1])
        seen = set(shapes()[0])
        spent: list[float] = []
        while len(spent) < count:
            request = draw_shape(cluster.chance)
            if request not in seen:
                seen.add(request)
                spent.append(_decide(cluster, planner, request))
        prefix = "" if policy == "default" else f"{policy}_"
        yield f"{prefix}p50_ms", 1e3 * float(np.percentile(spent, 50))
        yield f"{prefix}p99_ms", 1e3 * float(np.percentile(spent, 99))


def measure_tables() -> Iterator[tuple[str, float]]:
    """Bytes of every array the planner keeps per GPU, scores it remembers included."""
    cluster = _cluster(5000)
    sizes = []
    for policy in ("binpack", "fgd", "default"):
        planner = Planner(POLICIES[policy], cluster.workload)
        for request in shapes()[0]:
            planner.place(cluster.ledger.snapshot(), PlacementRequest(request))
        sizes.append(_array_bytes(planner.tables) / (GPUS * len(cluster.nodes)))
    yield "bytes_per_gpu", max(sizes)


def _decide(cluster: HalfFull, planner: Planner, request: Request) -> float:
    """Place and charge one pod, end another, and give the seconds the decision took."""
    snapshot = cluster.ledger.snapshot()
    start = thread_time()
    placement = planner.place(snapshot, PlacementRequest(request))
    spent = thread_time() - start
    if placement is not None:
        cluster.assume(request, placement.allocation)
        at = cluster.chance.randrange(len(cluster.held))
        cluster.held[at], cluster.held[-1] = cluster.held[-1], cluster.held[at]
        cluster.ledger.apply(PodGone(cluster.held.pop()))
    return spent


def _array_bytes(root: object) -> int:
    """Bytes of the arrays reachable from here, each counted once."""
    seen: set[int] = set()
    arrays: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {}
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type) or type(each).__name__ in _FOREIGN:
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            while isinstance(each.base, np.ndarray):
                each = each.base
            arrays[id(each)] = each
        else:
            waiting.extend(gc.get_referents(each))
    return sum(array.nbytes for array in arrays.values())


# Not the planner's own: code, the snapshot it looks at, and what that holds.
_FOREIGN = frozenset({"function", "module", "Snapshot", "NodeState", "mappingproxy"})
