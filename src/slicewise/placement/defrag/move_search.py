"""Looks for the fewest moves after which a pod fits, and of those for what interrupts least.

A set of pods of one node whose leaving makes room is tried in every order; then sets together with
other pods that must move first. Where a cluster is too large for all sets, good ones are tried.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import comb
from typing import Final

from slicewise.model import NodeState, Snapshot
from slicewise.placement.budget import StepBudget
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.defrag.lower_bound import count_least
from slicewise.placement.defrag.moves import (
    DefragPlan,
    MovablePod,
    MoveSimulator,
    count_percent,
)
from slicewise.placement.planner import Planner
from slicewise.placement.search import feasible

# Beyond so many sets of one size on a node only a good one is looked at.
_MOST_SETS: Final = 400
# Orders of up to so many moves are all tried.
_ORDERED: Final = 4


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How far a search goes; what it costs is counted and not timed."""

    moves: int = 8
    checks: int = 40_000
    """How often one node is looked at without some of its pods."""
    trials: int = 1_500
    """How many placements are tried."""
    helpers: int = 48
    """With at most so many movable pods, pods that only make room for other moves are tried."""


@dataclass(frozen=True, slots=True)
class DefragOutcome:
    """A plan if one was found, and whether it is known that none has fewer moves."""

    plan: DefragPlan | None
    exact: bool


def plan_moves(
    planner: Planner,
    snapshot: Snapshot,
    wanted: PlacementRequest,
    movable: Collection[MovablePod],
    limits: SearchLimits | None = None,
) -> DefragOutcome:
    """The fewest moves after which the pod fits; no moves where it fits already."""
    pods = {each.uid: each for each in sorted(movable, key=lambda pod: pod.uid)}
    simulator = MoveSimulator(planner, snapshot, wanted, pods)
    search = _MoveSearch(simulator, limits or SearchLimits())
    placement = planner.place(snapshot, wanted)
    if placement is not None:
        room = simulator.find_room(placement.allocation.node, ())
        assert room is not None
        return DefragOutcome(DefragPlan((), room, placement.allocation), exact=True)
    return DefragOutcome(search.run(), search.complete)


@dataclass(frozen=True, slots=True)
class _VictimSet:
    """Pods of one node without which the pod fits there, and what their moves interrupt."""

    node: str
    victims: tuple[str, ...]
    cost: int


@dataclass(slots=True)
class _Goal:
    """A node to which the pod may go, with the pods that may leave it, cheapest first."""

    state: NodeState
    pods: list[str]
    least: int
    greedy: tuple[str, ...] | None = None


class _MoveSearch:
    def __init__(self, simulator: MoveSimulator, limits: SearchLimits) -> None:
        self._simulator = simulator
        self._limits = limits
        self._wanted = simulator.wanted
        self._checks = limits.checks
        self._small = len(simulator.movable) <= limits.helpers
        self._costs = self._read_costs()
        self._sets: list[list[_VictimSet]] = []
        self.complete = True

    def run(self) -> DefragPlan | None:
        goals = self._find_goals()
        self._sets.append([])
        for size in range(1, self._limits.moves + 1):
            self._sets.append(sorted(self._find_sets(goals, size), key=_order))
            for chosen, helpers in self._candidates(size):
                if self._simulator.trials >= self._limits.trials:
                    self.complete = False
                    return None
                plan = self._try(chosen, helpers)
                if plan is not None:
                    return plan
        return None

    def _read_costs(self) -> dict[str, int]:
        costs = {}
        for uid, pod in self._simulator.movable.items():
            state = self._simulator.snapshot.get(pod.node)
            held = None if state is None else state.find(uid)
            if state is not None and held is not None:
                costs[uid] = pod.seconds * count_percent(state, held)
        return costs

    def _find_goals(self) -> list[_Goal]:
        """The nodes that so many moves could suffice for, those with the fewest first."""
        on_node: dict[str, list[str]] = {}
        for uid in self._costs:
            on_node.setdefault(self._simulator.movable[uid].node, []).append(uid)
        asked = self._wanted.nodes
        goals = []
        for name, uids in on_node.items():
            state = self._simulator.snapshot.get(name)
            if state is None or (asked is not None and name not in asked):
                continue
            uids.sort(key=lambda uid: (self._costs[uid], uid))
            least = count_least(state, self._wanted.on(state.node), frozenset(uids))
            if least is not None and least <= self._limits.moves:
                goals.append(_Goal(state, uids, max(1, least)))
        return sorted(goals, key=lambda goal: (goal.least, goal.state.node.name))

    def _find_sets(self, goals: Iterable[_Goal], size: int) -> Iterator[_VictimSet]:
        """The sets of this size without which the pod fits on one of these nodes."""
        for goal in goals:
            if goal.least > size:
                return
            if size > len(goal.pods):
                continue
            if comb(len(goal.pods), size) <= _MOST_SETS:
                sets: Iterable[tuple[str, ...]] = combinations(goal.pods, size)
            else:
                self.complete = False
                if goal.greedy is None:
                    goal.greedy = self._reprieve(goal)
                sets = [goal.greedy] if len(goal.greedy) == size else []
            name = goal.state.node.name
            for victims in sets:
                if not self._take_check():
                    return
                if self._fits(goal.state, victims):
                    yield _VictimSet(name, victims, sum(map(self._costs.__getitem__, victims)))

    def _reprieve(self, goal: _Goal) -> tuple[str, ...]:
        """A set that suffices and of which nobody can stay; empty if all of them do not suffice."""
        victims = list(goal.pods)
        if not self._fits(goal.state, victims):
            return ()
        crowd: dict[int, int] = {}
        charges = {}
        for uid in victims:
            held = goal.state.find(uid)
            charges[uid] = () if held is None else held.charges
            for piece in charges[uid]:
                crowd[piece.gpu] = crowd.get(piece.gpu, 0) + 1
        # Whoever is on a crowded GPU stays first, for it takes more moves to empty that one.
        crowded = {
            uid: max((crowd[piece.gpu] for piece in pieces), default=0)
            for uid, pieces in charges.items()
        }
        for uid in sorted(victims, key=lambda uid: (-crowded[uid], -self._costs[uid], uid)):
            if not self._take_check():
                break
            fewer = [each for each in victims if each != uid]
            if self._fits(goal.state, fewer):
                victims = fewer
        return tuple(victims)

    def _fits(self, state: NodeState, victims: Iterable[str]) -> bool:
        for uid in victims:
            state = state.release(uid)
        wanted = self._wanted.on(state.node)
        budget = StepBudget()
        fits = feasible(state, wanted.request, wanted.limits, budget)
        if budget.ended:
            self.complete = False
        return fits

    def _take_check(self) -> bool:
        self._checks -= 1
        if self._checks < 0:
            self.complete = False
        return self._checks >= 0

    def _candidates(self, size: int) -> Iterator[tuple[_VictimSet, tuple[str, ...]]]:
        """What to try with so many moves: victims, and others that move to make room for them."""
        fewer = {(each.node, each.victims) for part in self._sets[:size] for each in part}
        for chosen in self._sets[size]:
            if self._small or not _contains_any(chosen, fewer):
                yield chosen, ()
        if not self._small:
            # Moves that only help others are not looked for among very many pods.
            self.complete = self.complete and size == 1
            return
        uids = sorted(self._costs, key=lambda uid: (self._costs[uid], uid))
        for number in range(1, size):
            for chosen in self._sets[size - number]:
                others = [uid for uid in uids if uid not in chosen.victims]
                for helpers in combinations(others, number):
                    yield chosen, helpers

    def _try(self, chosen: _VictimSet, helpers: tuple[str, ...]) -> DefragPlan | None:
        room = self._simulator.find_room(chosen.node, chosen.victims)
        if room is None:
            return None
        for order in self._orders((*helpers, *chosen.victims)):
            if self._simulator.trials >= self._limits.trials:
                self.complete = False
                return None
            plan = self._simulator.run(order, room)
            if plan is not None:
                return plan
        return None

    def _orders(self, pods: Sequence[str]) -> Iterable[tuple[str, ...]]:
        if len(pods) <= _ORDERED and (self._small or len(pods) <= 2):
            return permutations(pods)
        self.complete = False
        # What is hardest to place goes first.
        largest = sorted(pods, key=lambda uid: (-self._size(uid), uid))
        return (tuple(largest),)

    def _size(self, uid: str) -> int:
        pod = self._simulator.movable[uid]
        shares = [share for each in pod.wanted.request.containers for share in each.shares]
        return sum(int(share.cores) for share in shares)


def _order(each: _VictimSet) -> tuple[int, str, tuple[str, ...]]:
    return each.cost, each.node, each.victims


def _contains_any(chosen: _VictimSet, fewer: Collection[tuple[str, tuple[str, ...]]]) -> bool:
    """Whether fewer of these pods were tried already."""
    return any(
        (chosen.node, part) in fewer
        for size in range(1, len(chosen.victims))
        for part in combinations(chosen.victims, size)
    )
