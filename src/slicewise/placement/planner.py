"""The engine: from snapshot, request and policy to a placement, or to refusals.

The answer depends on the arguments alone; what is kept between calls only saves time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from slicewise.model import Reason, Refusal, Snapshot
from slicewise.placement.budget import StepBudget
from slicewise.placement.decider import Decider, Load, Placement, PlacementRequest
from slicewise.placement.policy import POLICIES, Policy
from slicewise.placement.row_cache import UuidIndex
from slicewise.placement.screen import read_reasons
from slicewise.placement.tables import NodeTables
from slicewise.placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Decision:
    """A placement if there is one, and the nodes that could or could not take the pod."""

    placement: Placement | None
    scores: Mapping[str, float]
    refused: Sequence[str]
    explain: Callable[[str], Refusal]

    @property
    def refusals(self) -> dict[str, Refusal]:
        """Why each node refused; each explanation is computed again."""
        return {name: self.explain(name) for name in self.refused}


@dataclass(frozen=True, slots=True)
class Screening:
    """Which of the nodes asked can take a pod, in the order asked, and why the others cannot.

    `fits` stands beside the names asked; nodes the cluster does not have are `unknown`.
    """

    fits: list[bool]
    reasons: dict[str, Reason]
    unknown: list[str]


class Planner:
    """Decides by one policy; ties go to the lowest place in `order`, then the lowest name."""

    def __init__(
        self,
        policy: Policy = POLICIES["default"],
        workload: Workload | None = None,
        order: Mapping[str, int] | None = None,
        *,
        tables: NodeTables | None = None,
    ) -> None:
        """Planners of one loop may share tables, which are large and slow to build."""
        self.policy = policy
        self.workload = Workload() if workload is None else workload
        self.tables = NodeTables(order) if tables is None else tables

    def warm_up(self, snapshot: Snapshot) -> None:
        """Build what later decisions bring up to date, so that none waits for all of it."""
        self.tables.sync(snapshot)
        UuidIndex.of(self.tables).refresh()

    def place(
        self, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None = None
    ) -> Placement | None:
        """The best placement, or None when no node can take the pod."""
        return self._choose([each.best() for each in self.deciders(snapshot, wanted, load)])

    def place_on(
        self,
        snapshot: Snapshot,
        wanted: PlacementRequest,
        name: str,
        budget: StepBudget | None = None,
    ) -> Placement | None:
        """The placement on this one node, or None when it cannot take the pod."""
        state = snapshot.get(name)
        if state is None:
            return None
        asked = replace(wanted.on(state.node), nodes=(name,))
        decider = Decider(self, snapshot, asked, None, budget)
        row = self.tables.row_of.get(name)
        return None if row is None else decider.on(row)

    def decide(
        self, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None = None
    ) -> Decision:
        """The best placement with every node's score or refusal."""
        deciders = self.deciders(snapshot, wanted, load)
        names = self.tables.names
        found: dict[int, float] = {}
        refused: dict[int, Decider] = {}
        for decider in deciders:
            feasible = decider.settled()
            scores = decider.outcome.scores
            found |= {row: float(scores[row]) for row in np.flatnonzero(feasible).tolist()}
            rows = np.flatnonzero(decider.asked & ~feasible).tolist()
            refused |= dict.fromkeys(rows, decider)
        of_name = {names[row]: refused[row] for row in sorted(refused)}
        return Decision(
            placement=self._choose([each.best() for each in deciders]),
            scores={names[row]: found[row] for row in sorted(found)},
            refused=list(of_name),
            explain=lambda name: of_name[name].explain(name),
        )

    def deciders(
        self, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None = None
    ) -> list["Decider"]:
        """One for all rows, or one for the rows of each unit of memory where nodes differ in it."""
        own = wanted.request.memory_unit
        if own is None:
            return [Decider(self, snapshot, wanted, load)]
        self.tables.sync(snapshot, load)
        units = sorted({each.memory_unit or own for each in self.tables.classes}) or [own]
        if len(units) == 1:
            return [Decider(self, snapshot, wanted.in_unit(units[0]), load)]
        budget, found = StepBudget(), []
        for unit in units:
            decider = Decider(self, snapshot, wanted.in_unit(unit), load, budget)
            decider.narrow([(each.memory_unit or own) == unit for each in self.tables.classes])
            found.append(decider)
        return found

    def _choose(self, found: Sequence[Placement | None]) -> Placement | None:
        """The one with the highest score; of equal ones that of the first row."""
        rows = self.tables.row_of
        return max(
            (each for each in found if each is not None),
            key=lambda each: (each.score, -rows[each.allocation.node]),
            default=None,
        )


class Screener:
    """Tells which nodes can take a pod, without judging which is best; shares a planner's tables.

    It finds what every planner finds, for fit does not depend on the policy.
    """

    def __init__(self, tables: NodeTables) -> None:
        self._planner = Planner(Policy("fit", (), ()), tables=tables)

    def screen(
        self, snapshot: Snapshot, wanted: PlacementRequest, names: Sequence[str]
    ) -> Screening:
        tables = self._planner.tables
        deciders = self._planner.deciders(snapshot, replace(wanted, nodes=None))
        feasible = np.logical_or.reduce([each.settled() for each in deciders])
        rows = np.fromiter(map(tables.row_of.get, names, repeat(-1)), np.int64, len(names))
        known = rows >= 0
        fits = feasible[rows] & known if len(feasible) else known
        refused = np.unique(rows[known & ~fits])
        listed, unknown = tables.names, []
        if not known.all():
            unknown = [names[at] for at in np.flatnonzero(~known).tolist()]
        found: dict[str, Reason] = {}
        for decider in deciders:
            own = refused[decider.asked[refused]]
            reasons = read_reasons(decider.node_query(), own)
            found |= zip((listed[row] for row in own.tolist()), reasons, strict=True)
        return Screening(fits.tolist(), found, unknown)
