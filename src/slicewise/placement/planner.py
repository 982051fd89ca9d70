"""The engine: from snapshot, request and policy to a placement, or to refusals.

One loop serves every policy: filter the rows, score them, take the first best, choose GPUs.
The answer depends on the arguments alone; what is kept between calls only saves time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np

from slicewise.model import (
    Allocation,
    ContainerAllocation,
    NodeState,
    Reason,
    Refusal,
    Request,
    Snapshot,
    cut,
    model_admitted,
)
from slicewise.placement.explain import admitted_gpus, explain
from slicewise.placement.groups import Group, split
from slicewise.placement.policy import POLICIES, Policy
from slicewise.placement.quota_limits import UNLIMITED, QuotaLimits
from slicewise.placement.screen import NodeQuery, read_reasons
from slicewise.placement.search import search
from slicewise.placement.tables import Bools, NodeTables
from slicewise.placement.walk import Eligible, Walk, WalkOptions, walk
from slicewise.placement.workload import Workload

Load = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes, and the score of that choice."""

    allocation: Allocation
    score: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A placement if there is one, and the nodes that could or could not take the pod."""

    placement: Placement | None
    scores: Mapping[str, float]
    refused: Sequence[str]
    explain: Callable[[str], Refusal]

    @property
    def refusals(self) -> dict[str, Refusal]:
        """Why each node refused; each explanation is computed anew."""
        return {name: self.explain(name) for name in self.refused}


@dataclass(frozen=True, slots=True)
class Screening:
    """Which of the nodes asked can take a pod, in the order asked, and why the others cannot.

    `fits` stands beside the names asked; nodes the cluster does not have are `unknown`.
    """

    fits: list[bool]
    reasons: dict[str, Reason]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pod to place: what it asks, what its namespace may use, and which nodes to ask."""

    request: Request
    limits: QuotaLimits = UNLIMITED
    nodes: Collection[str] | None = None
    salt: str = ""


class Planner:
    """Decides by one policy; ties go to the lowest place in `order`, then the lowest name."""

    def __init__(
        self,
        policy: Policy = POLICIES["default"],
        workload: Workload | None = None,
        order: Mapping[str, int] | None = None,
    ) -> None:
        self.policy = policy
        self.workload = Workload() if workload is None else workload
        self.tables = NodeTables(order)

    def place(
        self, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None = None
    ) -> Placement | None:
        """The best placement, or None when no node can take the pod."""
        decider = Decider(self, snapshot, wanted, load)
        return decider.best()

    def place_on(self, snapshot: Snapshot, wanted: PlacementRequest, name: str) -> Placement | None:
        """The placement on this one node, or None when it cannot take the pod."""
        decider = Decider(self, snapshot, replace(wanted, nodes=(name,)), None)
        row = self.tables.row_of.get(name)
        return None if row is None else decider.on(row)

    def decide(
        self, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None = None
    ) -> Decision:
        """The best placement with every node's score or refusal."""
        decider = Decider(self, snapshot, wanted, load)
        feasible = decider.settled()
        names, scores = self.tables.names, decider.outcome.scores
        fitting = np.flatnonzero(feasible).tolist()
        refused = [names[row] for row in np.flatnonzero(decider.asked & ~feasible).tolist()]
        return Decision(
            placement=decider.best(),
            scores={names[row]: float(scores[row]) for row in fitting},
            refused=refused,
            explain=decider.explain,
        )


class Screener:
    """Tells which nodes can take a pod, without judging which is best; shares a planner's tables.

    It finds what every planner finds, for fit does not depend on the policy.
    """

    def __init__(self, tables: NodeTables) -> None:
        self._planner = Planner(Policy("fit", (), ()))
        self._planner.tables = tables

    def screen(
        self, snapshot: Snapshot, wanted: PlacementRequest, names: Sequence[str]
    ) -> Screening:
        tables = self._planner.tables
        decider = Decider(self._planner, snapshot, replace(wanted, nodes=None), None)
        feasible = decider.settled()
        rows = np.fromiter(map(tables.row_of.get, names, repeat(-1)), np.int64, len(names))
        known = rows >= 0
        fits = feasible[rows] & known if len(feasible) else known
        refused = np.unique(rows[known & ~fits])
        listed, unknown = tables.names, []
        if not known.all():
            unknown = [names[at] for at in np.flatnonzero(~known).tolist()]
        reasons = read_reasons(decider.node_query(), refused)
        refusing = (listed[row] for row in refused.tolist())
        return Screening(fits.tolist(), dict(zip(refusing, reasons, strict=True)), unknown)


class Decider:
    """One placement request decided on one snapshot."""

    def __init__(
        self, planner: Planner, snapshot: Snapshot, wanted: PlacementRequest, load: Load | None
    ) -> None:
        request = wanted.request
        self._tables = planner.tables
        self._wanted = wanted
        self._groups = split(request)
        self._view = planner.tables.sync(snapshot, load)
        self._options = WalkOptions(
            tables=planner.tables,
            policy=planner.policy,
            workload=planner.workload,
            cpu=int(request.host.cpu),
            topology=request.constraints.topology,
            salt=wanted.salt,
        )
        self.asked = self._asked()
        self._admitted = self._admitted_gpus()
        self._found: dict[int, tuple[tuple[int, ...], ...]] = {}

    @cached_property
    def outcome(self) -> Walk:
        eligible = Eligible(self._feasible(), self._admitted)
        return walk(self._view, self._groups, self._options, eligible=eligible, want_gpus=False)

    def _asked(self) -> Bools:
        count = len(self._tables.names)
        if self._wanted.nodes is None:
            return np.ones(count, dtype=np.bool_)
        nodes = self._wanted.nodes
        rows = np.fromiter(map(self._tables.row_of.get, nodes, repeat(count)), np.int64, len(nodes))
        # Unknown nodes are marked behind the last row, which is cut off.
        asked = np.zeros(count + 1, dtype=np.bool_)
        asked[rows] = True
        return asked[:count]

    def _feasible(self) -> Bools:
        view, host = self._view, self._wanted.request.host
        feasible = self.asked & (view.cpu >= host.cpu) & (view.host_memory >= host.memory)
        pools = self._wanted.limits.pools
        if pools is not None and self._groups:
            inside = [each.pool in pools for each in self._tables.classes]
            feasible &= np.array(inside, dtype=np.bool_)[view.node_class]
        lone = self._wanted.request.lone
        if lone and self._groups:
            carried = [not lone & each.counted for each in self._tables.classes]
            feasible &= np.array(carried, dtype=np.bool_)[view.node_class]
        return feasible

    def _admitted_gpus(self) -> Bools | None:
        """The GPUs that constraints and quota leave over, or None for all."""
        constraints, limits = self._wanted.request.constraints, self._wanted.limits
        admitted: Bools | None = None
        if constraints.models or constraints.models_refused or limits.models is not None:
            table = [
                model_admitted(model, constraints.models, constraints.models_refused)
                and (limits.models is None or model in limits.models)
                for model in self._tables.models
            ]
            admitted = np.array([*table, False], dtype=np.bool_)[self._view.model]
        if constraints.uuids or constraints.uuids_refused:
            named = self._named_gpus()
            admitted = named if admitted is None else admitted & named
        return admitted

    def _named_gpus(self) -> Bools:
        constraints = self._wanted.request.constraints
        named = np.zeros(self._view.whole.shape, dtype=np.bool_)
        for row, state in enumerate(self._tables.states):
            for at, gpu in enumerate(state.node.gpus):
                named[row, at] = (
                    not constraints.uuids or gpu.uuid in constraints.uuids
                ) and gpu.uuid not in constraints.uuids_refused
        return named

    def settled(self) -> Bools:
        """Which rows can take the pod, with every doubtful one searched."""
        if len(self._groups) > 1:
            base = self._feasible()
            for row in np.flatnonzero(base & ~self.outcome.feasible).tolist():
                if self._search(row):
                    self.outcome.feasible[row] = True
        return self.outcome.feasible

    def best(self) -> Placement | None:
        scores = np.where(self.outcome.feasible, self.outcome.scores, -np.inf)
        row = int(scores.argmax()) if len(scores) else 0
        if len(scores) and self.outcome.feasible[row]:
            return Placement(self._allocate(row), float(scores[row]))
        if len(self._groups) < 2:
            return None
        for row in np.flatnonzero(self._feasible()).tolist():
            if self._search(row):
                return Placement(self._allocate(row), float(self.outcome.scores[row]))
        return None

    def on(self, row: int) -> Placement | None:
        """The placement on one row, without a look at the others."""
        if not self._feasible()[row]:
            return None
        only = self._walk_row(row)
        if only.feasible[0] or (len(self._groups) > 1 and self._search(row)):
            return Placement(self._allocate(row, only), float(only.scores[0]))
        return None

    def node_query(self) -> NodeQuery:
        """The request and the rows, for finding out why rows refuse."""
        wanted = self._wanted
        return NodeQuery(
            tables=self._tables,
            view=self._view,
            request=wanted.request,
            limits=wanted.limits,
            groups=self._groups,
            admitted=self._admitted,
        )

    def explain(self, name: str) -> Refusal:
        state = self._tables.states[self._tables.row_of[name]]
        return explain(state, self._wanted.request, self._wanted.limits)

    def _search(self, row: int) -> bool:
        if row not in self._found:
            topology = self._wanted.request.constraints.topology
            state = self._tables.states[row]
            gpus = admitted_gpus(state, self._wanted.request, self._wanted.limits)
            found = None
            if topology is None or not topology.strict:
                found = search(state, self._groups, gpus)
            if found is None:
                return False
            self._found[row] = found
        return True

    def _walk_row(self, row: int) -> Walk:
        """One row alone, with the GPUs it would allocate."""
        rows = np.array([row], dtype=np.int64)
        admitted = None if self._admitted is None else self._admitted[rows]
        return walk(
            self._view.take(rows),
            self._groups,
            self._options,
            eligible=Eligible(np.ones(1, dtype=np.bool_), admitted),
            want_gpus=True,
        )

    def _allocate(self, row: int, only: Walk | None = None) -> Allocation:
        state = self._tables.states[row]
        if row in self._found:
            gpus = list(self._found[row])
        elif only is None and self.outcome.room is not None and self._groups[0].count == 1:
            gpus = [(int(self.outcome.room[row].argmax()),)]
        else:
            only = only or self._walk_row(row)
            # Scores may depend on the rows beside this one: the search has the last word.
            if not only.feasible[0] and self._search(row):
                return self._allocate(row)
            gpus = [tuple(np.flatnonzero(mask[0]).tolist()) for mask in only.gpus]
        return allocate(state, self._wanted.request, self._groups, gpus)


def allocate(
    state: NodeState,
    request: Request,
    groups: Sequence[Group],
    chosen: Sequence[tuple[int, ...]],
) -> Allocation:
    gpus = state.node.gpus
    containers = []
    for position, container in enumerate(request.containers):
        if request.constraints.together:
            pieces = [
                cut(share, gpus[at]) for share, at in zip(container.shares, chosen[0], strict=True)
            ]
        else:
            left = {
                (group.cores, group.memory): list(picked)
                for group, picked in zip(groups, chosen, strict=True)
                if group.container == position
            }
            pieces = [
                cut(share, gpus[left[int(share.cores), int(share.memory)].pop(0)])
                for share in container.shares
            ]
        containers.append(ContainerAllocation(container.name, tuple(pieces)))
    return Allocation(state.node.name, tuple(containers))
