"""One request decided on one snapshot, by one policy.

One loop serves every policy: filter the rows, score them, take the first best, choose GPUs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Final, Protocol

import numpy as np

from slicewise.model import (
    Allocation,
    ContainerAllocation,
    MiB,
    Node,
    NodeState,
    Refusal,
    Request,
    Snapshot,
    code_meets,
    cut,
    model_admitted,
)
from slicewise.placement.budget import FIRST_LOOK, STEPS, StepBudget
from slicewise.placement.counting import FreeTables, pack, possible
from slicewise.placement.explain import explain
from slicewise.placement.groups import Group, split
from slicewise.placement.policy import Policy
from slicewise.placement.quota_limits import (
    UNLIMITED,
    QuotaLimits,
    admitted_gpus,
    find_forbidden,
    needed_isolation,
)
from slicewise.placement.row_cache import UuidIndex
from slicewise.placement.screen import NodeQuery
from slicewise.placement.search import UNDECIDED, Found, Gpus, Undecided, find, search
from slicewise.placement.tables import Bools, Ints, NodeTables, TableView
from slicewise.placement.walk import Eligible, Walk, WalkOptions, walk
from slicewise.placement.workload import Workload

Load = Mapping[str, Sequence[int]]
# Groups of a request that the policy judges on every node.
SCORED: Final = 4


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes, and the score of that choice."""

    allocation: Allocation
    score: float


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pod to place: what it asks, what its namespace may use, and which nodes to ask."""

    request: Request
    limits: QuotaLimits = UNLIMITED
    nodes: Collection[str] | None = None
    salt: str = ""
    unit_limits: Mapping[MiB, QuotaLimits] = field(default_factory=dict)
    """What the namespace may use where nodes count memory in another unit than the request."""

    def on(self, node: Node) -> "PlacementRequest":
        """The same as this node understands it."""
        return self.in_unit(node.memory_unit)

    def in_unit(self, unit: MiB | None) -> "PlacementRequest":
        """The same where a unit of memory means this much."""
        asked = self.request.in_unit(unit)
        if unit is None or asked is self.request:
            return self
        return replace(self, request=asked, limits=self.unit_limits.get(unit, self.limits))


class PlacementRules(Protocol):
    """What requests are decided by."""

    policy: Policy
    workload: Workload
    tables: NodeTables


class Decider:
    """One placement request decided on one snapshot."""

    def __init__(
        self,
        rules: PlacementRules,
        snapshot: Snapshot,
        wanted: PlacementRequest,
        load: Load | None,
        budget: StepBudget | None = None,
    ) -> None:
        request = wanted.request
        self._tables = rules.tables
        self._wanted = wanted
        self._groups = split(request)
        self._view = rules.tables.sync(snapshot, load)
        self._options = WalkOptions(
            tables=rules.tables,
            policy=rules.policy,
            workload=rules.workload,
            cpu=int(request.host.cpu),
            topology=request.constraints.topology,
            salt=wanted.salt,
        )
        self.asked = self._asked()
        self._admitted = self._admitted_gpus()
        self._found: dict[int, tuple[Gpus, ...]] = {}
        self._known: dict[bytes, Found] = {}
        self._packs = self._settled = False
        self._outcome: Walk | None = None
        self._may: Bools | None = None
        self._budget = StepBudget() if budget is None else budget
        self.undecided: Bools = np.zeros(len(self.asked), dtype=np.bool_)

    def narrow(self, classes: Sequence[bool]) -> None:
        """Ask nodes of these classes alone; before anything was decided."""
        self.asked &= np.array(classes, dtype=np.bool_)[self._view.node_class]

    @property
    def outcome(self) -> Walk:
        """What looking at every row once comes to."""
        # Not a cached_property, which takes a lock for what one thread alone decides.
        if self._outcome is None:
            self._outcome = self._look_at_all()
        return self._outcome

    def _look_at_all(self) -> Walk:
        eligible, groups, policy = self._eligible, self._groups, self._options.policy
        blank = len(groups) > 1 and not policy.node and not self._strict
        self._packs = blank or len(groups) > SCORED
        if not self._packs:
            return self._walk(groups)
        # Of very many groups the largest decide where they go, and packing whether they fit.
        scores = np.zeros(len(eligible)) if blank else self._walk(groups[:SCORED]).scores
        feasible = np.zeros(len(eligible), dtype=np.bool_)
        rows = np.flatnonzero(eligible)
        if len(rows) and not self._strict:
            view, groups, admitted = self._some(rows)
            feasible[rows] = pack(FreeTables(view, admitted), groups)
        return Walk(feasible, scores)

    def _walk(self, groups: Sequence[Group]) -> Walk:
        eligible = Eligible(self._eligible, self._admitted)
        return walk(self._view, groups, self._options, eligible=eligible, want_gpus=False)

    @property
    def _strict(self) -> bool:
        topology = self._wanted.request.constraints.topology
        return topology is not None and topology.strict

    @property
    def _eligible(self) -> Bools:
        """The rows asked that have the host's amounts, and that counting does not refuse."""
        if self._may is None:
            self._may = self._find_eligible()
        return self._may

    def _find_eligible(self) -> Bools:
        base = self._feasible()
        if len(self._groups) < 2 or not base.any():
            return base
        rows = np.flatnonzero(base)
        base[rows] = possible(*self._some(rows))
        return base

    def _some(self, rows: Ints) -> tuple[TableView, tuple[Group, ...], Bools | None]:
        if len(rows) == len(self.asked):
            return self._view, self._groups, self._admitted
        admitted = None if self._admitted is None else self._admitted[rows]
        return self._view.take(rows), self._groups, admitted

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
        isolated = self._isolated_gpus()
        if isolated is None or admitted is None:
            return admitted if isolated is None else isolated
        return admitted & isolated

    def _isolated_gpus(self) -> Bools | None:
        """The GPUs that are isolated as demanded, or None for all."""
        request, limits = self._wanted.request, self._wanted.limits
        if find_forbidden(request, limits) is not None:
            return np.zeros(self._view.whole.shape, dtype=np.bool_)
        least = needed_isolation(request, limits)
        if not least:
            return None
        table = np.zeros((len(self._tables.classes), self._view.whole.shape[1]), dtype=np.bool_)
        for at, each in enumerate(self._tables.classes):
            table[at, : len(each.gpus)] = [code_meets(gpu.isolation, least) for gpu in each.gpus]
        isolated: Bools = table[self._view.node_class]
        return isolated

    def _named_gpus(self) -> Bools:
        constraints = self._wanted.request.constraints
        named = np.full(self._view.whole.shape, not constraints.uuids, dtype=np.bool_)
        index = UuidIndex.of(self._tables)
        for uuids, admitted in ((constraints.uuids, True), (constraints.uuids_refused, False)):
            for row, at in index.find(uuids):
                named[row, at] = admitted
        return named

    def settled(self) -> Bools:
        """Which rows can take the pod, with every doubtful one searched while steps are left."""
        if len(self._groups) > 1:
            for row in self._search_doubtful():
                self.outcome.feasible[row] = True
            self._settled = True
        return self.outcome.feasible

    def best(self) -> Placement | None:
        scores = np.where(self.outcome.feasible, self.outcome.scores, -np.inf)
        row = int(scores.argmax()) if len(scores) else 0
        if len(scores) and self.outcome.feasible[row]:
            return Placement(self._allocate(row), float(scores[row]))
        if len(self._groups) < 2 or self._settled:
            return None
        found = next(self._search_doubtful(), None)
        if found is None:
            return None
        return Placement(self._allocate(found), float(self.outcome.scores[found]))

    def _search_doubtful(self) -> Iterator[int]:
        """The rows on which only another choice of GPUs fits, in order as far as steps reach.

        Every table of free shares has a short look first, so that a hard one costs the others
        nothing.
        """
        rows = np.flatnonzero(self._eligible & ~self.outcome.feasible)
        if not len(rows) or self._strict:
            return
        view, groups, admitted = self._some(rows)
        tables = FreeTables(view, admitted)
        packed = [False] * len(rows) if self._packs else pack(tables, groups).tolist()
        hard = []
        for at, row in enumerate(rows.tolist()):
            if packed[at] or self._look(tables, at, FIRST_LOOK):
                yield row
            elif self._known[tables.key(at)] is UNDECIDED:
                hard.append((at, row))
        for at, row in hard:
            if self._look(tables, at, STEPS):
                yield row
            elif self._known[tables.key(at)] is UNDECIDED:
                self.undecided[row] = True

    def _look(self, tables: FreeTables, at: int, most: int) -> bool:
        """Whether the groups fit on a row; rows that are alike are looked at once."""
        key = tables.key(at)
        known = self._known.get(key, UNDECIDED)
        seen = key in self._known and most == FIRST_LOOK
        if known is UNDECIDED and self._budget.left and not seen:
            part = self._budget.split(most)
            known = find(tables.table(at), self._groups, part)
            self._budget.settle(part)
            self._budget.ended |= known is UNDECIDED and not self._budget.left
        self._known[key] = known
        return known is not None and known is not UNDECIDED

    def on(self, row: int) -> Placement | None:
        """The placement on one row, without a look at the others."""
        if not self._eligible[row]:
            return None
        if len(self._groups) > SCORED:
            if not self._search(row, self._budget):
                return None
            return Placement(self._allocate(row), 0.0)
        only = self._walk_row(row)
        if only.feasible[0] or (len(self._groups) > 1 and self._search(row, self._budget)):
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
            undecided=self.undecided,
        )

    def explain(self, name: str) -> Refusal:
        row = self._tables.row_of[name]
        state, wanted = self._tables.states[row], self._wanted
        return explain(state, wanted.request, wanted.limits, undecided=bool(self.undecided[row]))

    def _search(self, row: int, budget: StepBudget) -> bool:
        if row not in self._found:
            state = self._tables.states[row]
            gpus = admitted_gpus(state, self._wanted.request, self._wanted.limits)
            found: Found = None
            if not self._strict:
                found = search(state, self._groups, gpus, budget)
            if found is None or isinstance(found, Undecided):
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
        if row in self._found or (len(self._groups) > SCORED and self._search(row, StepBudget())):
            gpus = list(self._found[row])
        elif only is None and self.outcome.room is not None and self._groups[0].count == 1:
            gpus = [(int(self.outcome.room[row].argmax()),)]
        else:
            only = only or self._walk_row(row)
            # Scores may depend on the rows beside this one: the search has the last word.
            # It was seen to fit, so what is found then is found again within as many steps.
            if not only.feasible[0] and self._search(row, StepBudget()):
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
