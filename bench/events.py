"""How long the ledger takes for one pod event: assumed, listed as bound, gone."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from time import thread_time

import numpy as np

from bench.cluster import half_full, shapes
from slicewise.cluster import Assume, Event, Ledger, PodGone, PodSeen
from slicewise.dialects import DEFAULT, apply_record
from slicewise.model import Allocation, Container, Phase, Pod, Quantity, Request
from slicewise.placement import POLICIES, PlacementRequest, Planner

_NAMES = ("assumed", "bound", "updated", "deleting", "gone")


def measure_events() -> Iterator[tuple[str, float]]:
    """Single events on 5,000 nodes half full; pods are read by their dialect from their records."""
    cluster = half_full(5000)
    planner = Planner(POLICIES["binpack"], cluster.workload)
    requests, weights = shapes()
    chance = Random(7)
    spent: dict[str, list[float]] = {}
    for at in range(3000):
        request = chance.choices(requests, weights)[0]
        placement = planner.place(cluster.ledger.snapshot(), PlacementRequest(request))
        if placement is None:
            continue
        life = _life(f"life-{at}", request, placement.allocation, cluster.ledger)
        for name, event in zip(_NAMES, life, strict=True):
            start = thread_time()
            taken = cluster.ledger.apply(event)
            spent.setdefault(name, []).append(thread_time() - start)
            if not taken:
                raise AssertionError(f"the ledger refused {event}")
    each = [seconds for times in spent.values() for seconds in times]
    yield "p50_us", 1e6 * float(np.percentile(each, 50))
    yield "p99_us", 1e6 * float(np.percentile(each, 99))
    for name, times in spent.items():
        yield f"{name}_p50_us", 1e6 * float(np.percentile(times, 50))


def _life(uid: str, request: Request, allocation: Allocation, ledger: Ledger) -> tuple[Event, ...]:
    """A pod is assumed, listed as bound with its record, reported on as it runs, and gone."""
    state = ledger.snapshot().get(allocation.node)
    assert state is not None
    pod = Pod(uid, "bench", uid, (_container(request),), phase=Phase.RUNNING, version=1)
    record = DEFAULT.record_allocation(pod, request, allocation, state.node, now_ns=0)
    bound = replace(apply_record(pod, record), node=allocation.node)
    return (
        Assume(uid, "bench", uid, request, allocation, float("inf")),
        PodSeen(bound),
        PodSeen(replace(bound, version=2)),
        PodSeen(replace(bound, version=3, deleting=True)),
        PodGone(uid),
    )


def _container(request: Request) -> Container:
    """The request in our own dialect."""
    limits: dict[str, Quantity] = {
        "cpu": f"{request.host.cpu}m",
        "memory": f"{request.host.memory}Mi",
    }
    for asking in request.containers:
        share = asking.shares[0]
        limits["slicewise.io/gpu"] = len(asking.shares)
        if not share.whole:
            limits["slicewise.io/cores"] = int(share.cores)
            limits["slicewise.io/memory"] = int(share.memory)
    return Container("main", limits=limits)
