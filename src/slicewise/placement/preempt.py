"""Whom to evict so that a pod fits: the least important pods, and as few of them as can be.

A set of victims counts only if the pod really fits without them and with everybody else.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final

from slicewise.model import Holding, NodeState, Request, Snapshot
from slicewise.placement.explain import explain
from slicewise.placement.planner import PlacementRequest
from slicewise.placement.quota_limits import QuotaLimits
from slicewise.placement.search import feasible

_MOST_SETS: Final = 2000


@dataclass(frozen=True, slots=True)
class Eviction:
    """The pods to evict from one node."""

    node: str
    victims: tuple[Holding, ...]

    @property
    def cost(self) -> tuple[int, int, int, str]:
        """What decides between nodes: highest priority lost, pods lost, priorities lost."""
        priorities = [victim.priority for victim in self.victims]
        return (max(priorities, default=-(1 << 31)), len(priorities), sum(priorities), self.node)


def preempt(snapshot: Snapshot, wanted: PlacementRequest, priority: int) -> Eviction | None:
    """The eviction that costs least over all nodes asked, or None if none would help."""
    names: Iterable[str] = snapshot.slots if wanted.nodes is None else wanted.nodes
    found = [
        eviction
        for name in names
        if (state := snapshot.get(name)) is not None
        and (eviction := evict(state, wanted, priority)) is not None
    ]
    return min(found, key=lambda eviction: eviction.cost, default=None)


def evict(
    state: NodeState,
    wanted: PlacementRequest,
    priority: int,
    allowed: Collection[str] | None = None,
) -> Eviction | None:
    """The eviction that costs least on this node; only pods named in `allowed`, if given."""
    request, limits = wanted.request, wanted.limits
    if feasible(state, request, limits):
        return Eviction(state.node.name, ())
    if not explain(state, request, limits).reason.preemptible:
        return None
    lower = [
        holding
        for holding in state.holdings
        if holding.priority < priority and (allowed is None or holding.uid in allowed)
    ]
    for ceiling in sorted({holding.priority for holding in lower}):
        below = [holding for holding in lower if holding.priority <= ceiling]
        if feasible(_without(state, below), request, limits):
            victims = _fewest(state, below, request, limits)
            return Eviction(state.node.name, victims)
    return None


def _fewest(
    state: NodeState, pods: list[Holding], request: Request, limits: QuotaLimits
) -> tuple[Holding, ...]:
    """The fewest of these pods whose leaving makes room; they are known to suffice together."""
    pods = sorted(pods, key=lambda pod: (pod.priority, pod.uid))
    for count in range(1, len(pods)):
        if comb(len(pods), count) > _MOST_SETS:
            break
        sets = sorted(combinations(pods, count), key=lambda each: sum(pod.priority for pod in each))
        for victims in sets:
            if feasible(_without(state, victims), request, limits):
                return victims
    return _reprieved(state, pods, request, limits)


def _reprieved(
    state: NodeState, pods: list[Holding], request: Request, limits: QuotaLimits
) -> tuple[Holding, ...]:
    """Let every pod stay whose staying does not matter, the most important first."""
    victims = list(pods)
    for pod in reversed(pods):
        fewer = [victim for victim in victims if victim.uid != pod.uid]
        if feasible(_without(state, fewer), request, limits):
            victims = fewer
    return tuple(victims)


def _without(state: NodeState, pods: Iterable[Holding]) -> NodeState:
    for pod in pods:
        state = state.release(pod.uid)
    return state
