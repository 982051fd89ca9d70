"""Whom to evict so that a pod fits: the least important pods, and as few of them as can be.

A set of victims counts only if the pod really fits without them and with everybody else.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final

from slicewise.model import Holding, NodeState, Snapshot
from slicewise.placement.budget import PREEMPT_STEPS, StepBudget
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.search import feasible

_MOST_SETS: Final = 2000
_ABOVE_ALL: Final = 1 << 31
_STEPS_A_POD: Final = 24


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


@dataclass(frozen=True, slots=True)
class VictimLimits:
    """Who may be evicted, who leaves anyway, and how many steps a search may take."""

    allowed: Collection[str]
    leaving: Collection[str]
    budget: StepBudget


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """How a node gets room for a pod: whom to evict, and who leaves anyway and is waited for."""

    eviction: Eviction
    awaited: tuple[Holding, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """Everybody whose room is meant for the pod."""
        return tuple(each.uid for each in (*self.eviction.victims, *self.awaited))


def preempt(snapshot: Snapshot, wanted: PlacementRequest, priority: int) -> Eviction | None:
    """The eviction that costs least over all nodes asked, or None if none would help.

    For tools that look at few nodes: every node has the steps of a decision.
    """
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
    *,
    budget: StepBudget | None = None,
) -> Eviction | None:
    """The eviction that costs least on this node; only pods named in `allowed`, if given.

    Where the steps end early, more pods may leave than must, but never others than those.
    """
    search = _VictimSearch(state, wanted.on(state.node), budget or StepBudget(PREEMPT_STEPS))
    if search.fits(()):
        return Eviction(state.node.name, ())
    lower = [
        holding
        for holding in state.holdings
        if holding.priority < priority
        and not holding.claim
        and (allowed is None or holding.uid in allowed)
    ]
    if not search.fits(lower):
        return None
    for ceiling in sorted({holding.priority for holding in lower}):
        below = [holding for holding in lower if holding.priority <= ceiling]
        if search.fits(below):
            below.sort(key=lambda pod: (pod.priority, pod.uid))
            return Eviction(state.node.name, search.fewest(below))
    return None


def plan_room(
    state: NodeState, wanted: PlacementRequest, priority: int, limits: VictimLimits
) -> RoomPlan | None:
    """The eviction that costs least beside the pods that are leaving, and which of those matter."""
    leaving, budget = limits.leaving, limits.budget
    gone = [holding for holding in state.holdings if holding.uid in leaving]
    eviction = evict(_without(state, gone), wanted, priority, limits.allowed, budget=budget)
    if eviction is None or not gone:
        return None if eviction is None else RoomPlan(eviction)
    left = _without(state, eviction.victims)
    awaited = evict(left, wanted, _ABOVE_ALL, leaving, budget=budget)
    return RoomPlan(eviction, tuple(gone) if awaited is None else awaited.victims)


class _VictimSearch:
    """Looks for the fewest victims on one node."""

    def __init__(self, state: NodeState, wanted: PlacementRequest, budget: StepBudget) -> None:
        self._state = state
        self._wanted = wanted
        self._budget = budget

    def fits(self, victims: Sequence[Holding]) -> bool:
        """Whether the pod fits without these, as far as the steps can tell."""
        if not self._budget.take(len(victims) // 4):
            return False
        left = _without(self._state, victims)
        return feasible(left, self._wanted.request, self._wanted.limits, self._budget)

    def fewest(self, pods: list[Holding]) -> tuple[Holding, ...]:
        """The fewest of these pods whose leaving makes room; they suffice together."""
        # What it takes to let every pod stay that need not go.
        reserve = _STEPS_A_POD * len(pods)
        for count in range(1, len(pods)):
            if comb(len(pods), count) > _MOST_SETS:
                break
            sets = sorted(combinations(pods, count), key=_priorities)
            for victims in sets:
                if self._budget.left < reserve:
                    return self._reprieved(pods)
                if self.fits(victims):
                    return victims
        return self._reprieved(pods)

    def _reprieved(self, pods: list[Holding]) -> tuple[Holding, ...]:
        """Let every pod stay whose staying does not matter, the most important first."""
        victims = list(pods)
        for pod in reversed(pods):
            fewer = [victim for victim in victims if victim.uid != pod.uid]
            if self.fits(fewer):
                victims = fewer
        return tuple(victims)


def _priorities(pods: Iterable[Holding]) -> int:
    return sum(pod.priority for pod in pods)


def _without(state: NodeState, pods: Iterable[Holding]) -> NodeState:
    for pod in pods:
        state = state.release(pod.uid)
    return state
