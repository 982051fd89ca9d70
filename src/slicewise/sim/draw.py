"""Arrivals drawn by chance, the same for the same seed: with and without departures.

Without departures: the pods sorted by name and shuffled, then more drawn from the list until
the wanted load is reached, or some struck off where the list is longer than that. Nodes get their
ranks for ties from a permutation.
"""

from random import Random
from typing import Final

from slicewise.model import TraceError
from slicewise.placement import shape_of
from slicewise.sim.trace import ArrivalOrder, PodVisits, Trace

# From an empty cluster, four mean stays bring the load to 98 percent of where it settles.
WARM_UP: Final = 4.0
MEASURED: Final = 3.0


def draw_arrivals(trace: Trace, seed: int, load: int = 130) -> ArrivalOrder:
    """An order of arrivals that brings `load` percent of the cluster's GPUs as demand."""
    chance = Random(seed)
    order = list(range(len(trace.pods)))
    chance.shuffle(order)
    _fill(order, trace, load, chance)
    return ArrivalOrder(order, draw_ranks(trace, chance))


def draw_visits(trace: Trace, seed: int, load: float) -> PodVisits:
    """Poisson arrivals and exponential stays that offer `load` of the cluster's GPUs."""
    mean = sum(trace.demands) / len(trace.pods) if trace.pods else 0.0
    if not mean:
        raise TraceError(f"trace {trace.name}: no pod asks for a GPU, expected some")
    rate = load * trace.capacity / mean
    chance = Random(seed)
    ranks = draw_ranks(trace, chance)
    order, times, stays = [], [], []
    now = chance.expovariate(rate)
    while now < WARM_UP + MEASURED:
        order.append(chance.randrange(len(trace.pods)))
        times.append(now)
        stays.append(chance.expovariate(1.0))
        now += chance.expovariate(rate)
    return PodVisits(order, times, stays, ranks)


def cut_arrivals(trace: Trace, arrivals: ArrivalOrder, load: int) -> ArrivalOrder:
    limit, total = load * trace.capacity, 0
    for at, pod in enumerate(arrivals.order):
        total += 100 * trace.demands[pod]
        if total > limit:
            return ArrivalOrder(arrivals.order[:at], arrivals.ranks)
    return arrivals


def _fill(order: list[int], trace: Trace, load: int, chance: Random) -> None:
    wanted = load * trace.capacity / 100
    total = sum(trace.demands)
    if not total:
        return
    if total > wanted:
        while total > wanted:
            struck = order.pop(chance.randrange(len(order)))
            total -= trace.demands[struck]
        return
    while True:
        drawn = chance.randrange(len(trace.pods))
        # The published protocol looks at one share here, whatever the number of GPUs.
        share = trace.demands[drawn] // max(1, shape_of(trace.pods[drawn].request).count)
        if total + share > wanted:
            return
        order.append(drawn)
        total += trace.demands[drawn]


def draw_ranks(trace: Trace, chance: Random) -> dict[str, int]:
    """Who wins ties: every node with its rank in a permutation."""
    ranks = list(range(len(trace.nodes)))
    chance.shuffle(ranks)
    return {node.name: rank for node, rank in zip(trace.nodes, ranks, strict=True)}
