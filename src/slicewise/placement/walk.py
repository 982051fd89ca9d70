"""One pass over the rows for one request: which fit, how well, and on which GPUs.

Groups of shares are placed one after another, each against what the earlier ones left, on all
rows at once. With one group this is exact; with several it is best effort, and `search` has the
last word on a row that seems too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from slicewise.model import FULL, Role, TopologyConstraint
from slicewise.placement.groups import Group, fit_mask
from slicewise.placement.policy import GPU_SCORES, JOINT, NODE_SCORES, Policy
from slicewise.placement.scoring.scoring_input import ScoringInput
from slicewise.placement.tables import Bools, Floats, Ints, NodeTables, TableView
from slicewise.placement.topology import is_listed, nearest_of_all, quality
from slicewise.placement.workload import Workload

_MOST_GROWN: Final = 16


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """What a walk needs to know beside the rows."""

    tables: NodeTables
    policy: Policy
    workload: Workload
    cpu: int
    topology: TopologyConstraint | None = None
    salt: str = ""

    def scoring_input(
        self, view: TableView, group: Group | None, *, ok: Bools, feasible: Bools
    ) -> ScoringInput:
        return ScoringInput(
            tables=self.tables,
            view=view,
            group=group,
            cpu=self.cpu,
            ok=ok,
            feasible=feasible,
            workload=self.workload,
            seed=self.policy.seed,
            salt=self.salt,
        )


@dataclass(frozen=True, slots=True)
class Eligible:
    """Where to look: rows that may take the pod, and GPUs it may have (None is all)."""

    feasible: Bools  # (nodes,)
    admitted: Bools | None = None  # (nodes, gpus)


@dataclass(slots=True)
class Walk:
    """The outcome per row; `gpus` holds one mask of chosen GPUs per group when asked for.

    A lone share is scored GPU by GPU: `room` has those scores, so that they are not computed again.
    """

    feasible: Bools  # (nodes,)
    scores: Floats  # (nodes,)
    gpus: list[Bools] = field(default_factory=list)  # (nodes, gpus) each
    room: Floats | None = None  # (nodes, gpus), -inf where a share does not fit


def walk(
    view: TableView,
    groups: Sequence[Group],
    options: WalkOptions,
    *,
    eligible: Eligible,
    want_gpus: bool,
) -> Walk:
    """Place the groups on every feasible row of the view, for scores or for GPUs."""
    if not groups:
        ok = np.zeros(view.whole.shape, dtype=np.bool_)
        scoring = options.scoring_input(view, None, ok=ok, feasible=eligible.feasible)
        return Walk(eligible.feasible, _score(scoring, options.policy, None))
    outcome = Walk(eligible.feasible, np.zeros(len(eligible.feasible)))
    scored = [group for group in groups if group.role is not Role.INIT] or list(groups)
    current, before = view, view
    taken: dict[int, Bools] = {}
    for at, group in enumerate(groups):
        init = group.role is Role.INIT
        scoring = _step(before if init else current, group, options, outcome, eligible.admitted)
        if group.container in taken:
            scoring.ok &= ~taken[group.container]
        _narrow(scoring, options, outcome)
        if not outcome.feasible.any():
            break
        if group is not scored[0]:
            scoring.cpu = 0
        gpus = _gpu_scores(scoring, options.policy)
        if group in scored and not want_gpus:
            if gpus is not None and len(groups) == 1:
                outcome.room = np.where(scoring.ok, _total(gpus, options.policy), -np.inf)
            outcome.scores = outcome.scores + _score(scoring, options.policy, gpus, outcome.room)
            if group.count > 1 and options.topology is not None:
                outcome.scores = outcome.scores + _closeness(scoring, options)
        if not want_gpus and at + 1 == len(groups):
            break
        chosen = _choose(scoring, options, gpus, outcome.gpus if init else [])
        outcome.gpus.append(chosen)
        taken[group.container] = chosen | taken.get(group.container, chosen)
        if not init:
            current = _without(current, group, chosen)
        if group.role is Role.SIDECAR:
            before = _without(before, group, chosen)
    return outcome


def _step(
    view: TableView, group: Group, options: WalkOptions, outcome: Walk, admitted: Bools | None
) -> ScoringInput:
    ok = fit_mask(view, group)
    if admitted is not None:
        ok &= admitted
    return options.scoring_input(view, group, ok=ok, feasible=outcome.feasible)


def _narrow(scoring: ScoringInput, options: WalkOptions, outcome: Walk) -> None:
    """Drop the rows on which this group does not fit."""
    group = scoring.group
    assert group is not None
    outcome.feasible = outcome.feasible & (scoring.ok.sum(axis=1, dtype=np.int64) >= group.count)
    scoring.feasible = outcome.feasible
    if group.count > 1 and options.topology is not None and options.topology.strict:
        scoring.feasible = outcome.feasible = outcome.feasible & _linked(scoring, options)


def _joint(group: Group | None, policy: Policy) -> bool:
    return (
        group is not None
        and not group.whole
        and any(term in JOINT for term, _ in (*policy.node, *policy.gpu))
    )


def _gpu_scores(scoring: ScoringInput, policy: Policy) -> dict[str, Floats] | None:
    """GPU scores by name, where they decide between nodes as well."""
    if not _joint(scoring.group, policy):
        return None
    names = {name for name, _ in policy.gpu} | {name for name, _ in policy.node if name in JOINT}
    return {name: GPU_SCORES[name](scoring) for name in sorted(names)}


def _total(scores: dict[str, Floats], policy: Policy) -> Floats:
    if len(policy.gpu) == 1 and policy.gpu[0][1] == 1.0:
        return scores[policy.gpu[0][0]]
    total: Floats = sum(
        (weight * scores[name] for name, weight in policy.gpu),
        start=np.zeros(next(iter(scores.values())).shape),
    )
    return total


def _score(
    scoring: ScoringInput,
    policy: Policy,
    gpus: dict[str, Floats] | None,
    room: Floats | None = None,
) -> Floats:
    total = np.zeros(len(scoring.feasible))
    if gpus is None:
        for name, weight in policy.node:
            total += weight * NODE_SCORES[name](scoring)
        return total
    best = np.where(scoring.ok, _total(gpus, policy), -np.inf) if room is None else room
    if policy.node == policy.gpu:
        top: Floats = best.max(axis=1, initial=-np.inf)
        return top
    first = best.argmax(axis=1) if best.shape[1] else np.zeros(len(total), dtype=np.int64)
    rows = np.arange(len(total))
    for name, weight in policy.node:
        if name in JOINT:
            total += weight * gpus[name][rows, first]
        else:
            total += weight * NODE_SCORES[name](scoring)
    return total


def _choose(
    scoring: ScoringInput,
    options: WalkOptions,
    gpus: dict[str, Floats] | None,
    earlier: list[Bools],
) -> Bools:
    """The GPUs each row gives to the group, as a mask."""
    group, view = scoring.group, scoring.view
    assert group is not None
    linked = _linked_rows(scoring.tables, view) if group.whole else None
    if linked is not None and linked.all():
        return _nearest_gpus(scoring, options)
    if gpus is not None:
        scores = _total(gpus, options.policy)
    else:
        names = [(name, weight) for name, weight in options.policy.gpu if name not in JOINT]
        scores = np.zeros(scoring.ok.shape)
        for name, weight in names or [("best-fit", 1.0)]:
            scores = scores + weight * GPU_SCORES[name](scoring)
    for held in earlier:
        # An init container costs nothing where the pod's own containers will sit anyway.
        scores = scores + 1e9 * held
    chosen = np.zeros(scoring.ok.shape, dtype=np.bool_)
    room = np.where(scoring.ok, scores, -np.inf)
    rows = np.arange(len(chosen))
    for _ in range(group.count):
        gpu = room.argmax(axis=1)
        chosen[rows, gpu] |= scoring.ok[rows, gpu]
        room[rows, gpu] = -np.inf
    # Row by row, so that a row's GPUs are the same whichever rows are looked at with it.
    if linked is not None and linked.any():
        return np.where(linked[:, np.newaxis], _nearest_gpus(scoring, options), chosen)
    return chosen


def _linked_rows(tables: NodeTables, view: TableView) -> Bools:
    return np.array(tables.linked, dtype=np.bool_)[view.node_class]


def _nearest_gpus(scoring: ScoringInput, options: WalkOptions) -> Bools:
    chosen = np.zeros(scoring.ok.shape, dtype=np.bool_)
    for rows, subset in _subsets(scoring, options):
        chosen[rows[:, np.newaxis], list(subset)] = True
    return chosen


def _subsets(scoring: ScoringInput, options: WalkOptions) -> list[tuple[Ints, tuple[int, ...]]]:
    """The nearest GPUs of every feasible row, looked for once on nodes that are alike.

    Rows come together whose nodes are alike and have the same GPUs to choose from.
    """
    assert scoring.group is not None
    count, view = scoring.group.count, scoring.view
    alike: dict[int, list[Ints]] = {}
    for members in _group_alike(scoring):
        alike.setdefault(int(view.node_class[members[0]]), []).append(members)
    found = []
    for groups in alike.values():
        node = scoring.tables.states[int(view.rows[groups[0][0]])].node
        if not is_listed(node, count):
            # Sets of very many GPUs are grown one by one: where steps end, nothing is near.
            groups = groups[:_MOST_GROWN]  # noqa: PLW2901
        frees = [tuple(np.flatnonzero(scoring.ok[members[0]]).tolist()) for members in groups]
        chosen = nearest_of_all(node, frees, count, options.topology)
        for members, subset in zip(groups, chosen, strict=True):
            if subset is not None:
                found.append((members, subset))
    return found


def _group_alike(scoring: ScoringInput) -> list[Ints]:
    """The feasible rows by class of node and admitted GPUs, in the order of their first rows."""
    rows = np.flatnonzero(scoring.feasible)
    if not len(rows):
        return []
    classes = scoring.view.node_class[rows].astype(np.int64)[:, np.newaxis].view(np.uint8)
    keys = np.ascontiguousarray(np.hstack((classes, np.packbits(scoring.ok[rows], axis=1))))
    as_one = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, inverse = np.unique(as_one, return_index=True, return_inverse=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [rows[members[at]] for at in np.argsort(first, kind="stable").tolist()]


def _linked(scoring: ScoringInput, options: WalkOptions) -> Bools:
    """The rows that have GPUs as near as demanded."""
    linked = np.zeros(len(scoring.feasible), dtype=np.bool_)
    for rows, _ in _subsets(scoring, options):
        linked[rows] = True
    return linked


def _closeness(scoring: ScoringInput, options: WalkOptions) -> Floats:
    """Points for rows whose best GPUs are near each other, enough to outweigh the policy."""
    points = np.zeros(len(scoring.feasible))
    for rows, subset in _subsets(scoring, options):
        node = scoring.tables.states[int(scoring.view.rows[rows[0]])].node
        points[rows] = 10.0 * quality(node, subset)
    return points


def _without(view: TableView, group: Group, chosen: Bools) -> TableView:
    cores = np.where(chosen, view.free_cores - group.cores, view.free_cores)
    taken = view.memory if group.whole else group.memory
    memory = np.where(chosen, view.free_memory - taken, view.free_memory)
    room = np.minimum(cores, FULL * memory // np.maximum(view.memory, 1))
    return replace(
        view,
        free_cores=cores,
        free_memory=memory,
        whole=view.whole & ~chosen,
        idle=np.maximum(cores, 0).sum(axis=1),
        room=np.maximum(room, 0).sum(axis=1),
        whole_count=view.whole_count - (view.whole & chosen).sum(axis=1),
    )
