"""How long the ledger takes for one pod event: assumed, listed as bound, gone."""

from collections.abc import Iterator
from random import Random
from time import thread_time

import numpy as np

from bench.cluster import half_full, shapes
from slicewise.cluster import Assume, Event, PodGone, PodSeen
from slicewise.model import Phase, Pod
from slicewise.placement import POLICIES, Planner, Question


def measure_events() -> Iterator[tuple[str, float]]:
    """Single events on 5,000 nodes half full; pods come as values, already decoded."""
    cluster = half_full(5000)
    planner = Planner(POLICIES["binpack"], cluster.workload)
    requests, weights = shapes()
    chance = Random(7)
    spent = []
    for at in range(3000):
        request = chance.choices(requests, weights)[0]
        placement = planner.place(cluster.ledger.snapshot(), Question(request))
        if placement is None:
            continue
        uid, allocation = f"life-{at}", placement.allocation
        cluster.reader.known[uid] = (request, allocation)
        pod = Pod(uid, "bench", uid, node=allocation.node, phase=Phase.RUNNING, version=1)
        events: tuple[Event, ...] = (
            Assume(uid, "bench", uid, request, allocation, float("inf")),
            PodSeen(pod),
            PodGone(uid),
        )
        for event in events:
            start = thread_time()
            taken = cluster.ledger.apply(event)
            spent.append(thread_time() - start)
            if not taken:
                raise AssertionError(f"the ledger refused {event}")
    yield "p50_us", 1e6 * float(np.percentile(spent, 50))
    yield "p99_us", 1e6 * float(np.percentile(spent, 99))
