"""One pass over the rows for one request: which fit, how well, and on which GPUs.

Groups of shares are placed one after another, each against what the earlier ones left, on all
rows at once. With one group this is exact; with several it is best effort, and `search` has the
last word on a row that seems too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slicewise.model import FULL, Role, TopologyWish
from slicewise.placement.fits import fit_mask
from slicewise.placement.groups import Group
from slicewise.placement.policy import GPU_SCORES, JOINT, NODE_SCORES, Policy
from slicewise.placement.scoring_input import ScoringInput
from slicewise.placement.tables import Bools, Floats, NodeTables, TableView
from slicewise.placement.topology import nearest, quality
from slicewise.placement.workload import PodShape, Workload


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """What a walk needs to know beside the rows."""

    tables: NodeTables
    policy: Policy
    workload: Workload
    shape: PodShape
    cpu: int
    wish: TopologyWish | None = None
    salt: str = ""

    def ask(
        self, view: TableView, group: Group | None, *, ok: Bools, feasible: Bools
    ) -> ScoringInput:
        """The question to put to scoring functions for one group."""
        return ScoringInput(
            tables=self.tables,
            view=view,
            group=group,
            cpu=self.cpu,
            ok=ok,
            feasible=feasible,
            workload=self.workload,
            shape=self.shape,
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

    A lone share is scored GPU by GPU: `room` has those scores, so that nobody scores again.
    """

    feasible: Bools  # (nodes,)
    scores: Floats  # (nodes,)
    gpus: list[Bools] = field(default_factory=list)  # (nodes, gpus) each
    room: Floats | None = None  # (nodes, gpus), -inf where a share does not fit


def walk(
    view: TableView,
    groups: Sequence[Group],
    terms: WalkOptions,
    *,
    ground: Eligible,
    want_gpus: bool,
) -> Walk:
    """Place the groups on every feasible row of the view, for scores or for GPUs."""
    if not groups:
        ok = np.zeros(view.whole.shape, dtype=np.bool_)
        ask = terms.ask(view, None, ok=ok, feasible=ground.feasible)
        return Walk(ground.feasible, _score(ask, terms.policy, None))
    outcome = Walk(ground.feasible, np.zeros(len(ground.feasible)))
    scoring = [group for group in groups if group.role is not Role.INIT] or list(groups)
    current, before = view, view
    taken: dict[int, Bools] = {}
    for at, group in enumerate(groups):
        init = group.role is Role.INIT
        ask = _step(before if init else current, group, terms, outcome, ground.admitted)
        if group.container in taken:
            ask.ok &= ~taken[group.container]
        _narrow(ask, terms, outcome)
        if not outcome.feasible.any():
            break
        if group is not scoring[0]:
            ask.cpu = 0
        gpus = _gpu_scores(ask, terms.policy)
        if group in scoring and not want_gpus:
            if gpus is not None and len(groups) == 1:
                outcome.room = np.where(ask.ok, _total(gpus, terms.policy), -np.inf)
            outcome.scores = outcome.scores + _score(ask, terms.policy, gpus, outcome.room)
            if group.count > 1 and terms.wish is not None:
                outcome.scores = outcome.scores + _closeness(ask, terms)
        if not want_gpus and at + 1 == len(groups):
            break
        chosen = _choose(ask, terms, gpus, outcome.gpus if init else [])
        outcome.gpus.append(chosen)
        taken[group.container] = chosen | taken.get(group.container, chosen)
        if not init:
            current = _without(current, group, chosen)
        if group.role is Role.SIDECAR:
            before = _without(before, group, chosen)
    return outcome


def _step(
    view: TableView, group: Group, terms: WalkOptions, outcome: Walk, admitted: Bools | None
) -> ScoringInput:
    ok = fit_mask(view, group)
    if admitted is not None:
        ok &= admitted
    return terms.ask(view, group, ok=ok, feasible=outcome.feasible)


def _narrow(ask: ScoringInput, terms: WalkOptions, outcome: Walk) -> None:
    """Drop the rows on which this group does not fit."""
    group = ask.group
    assert group is not None
    outcome.feasible = outcome.feasible & (ask.ok.sum(axis=1, dtype=np.int64) >= group.count)
    ask.feasible = outcome.feasible
    if group.count > 1 and terms.wish is not None and terms.wish.strict:
        ask.feasible = outcome.feasible = outcome.feasible & _linked(ask, terms)


def _joint(group: Group | None, policy: Policy) -> bool:
    return (
        group is not None
        and not group.whole
        and any(term in JOINT for term, _ in (*policy.node, *policy.gpu))
    )


def _gpu_scores(ask: ScoringInput, policy: Policy) -> dict[str, Floats] | None:
    """GPU scores by name, where they decide between nodes as well."""
    if not _joint(ask.group, policy):
        return None
    names = {name for name, _ in policy.gpu} | {name for name, _ in policy.node if name in JOINT}
    return {name: GPU_SCORES[name](ask) for name in sorted(names)}


def _total(scores: dict[str, Floats], policy: Policy) -> Floats:
    if len(policy.gpu) == 1 and policy.gpu[0][1] == 1.0:
        return scores[policy.gpu[0][0]]
    total: Floats = sum(
        (weight * scores[name] for name, weight in policy.gpu),
        start=np.zeros(next(iter(scores.values())).shape),
    )
    return total


def _score(
    ask: ScoringInput, policy: Policy, gpus: dict[str, Floats] | None, room: Floats | None = None
) -> Floats:
    """The weighed score of every row."""
    total = np.zeros(len(ask.feasible))
    if gpus is None:
        for name, weight in policy.node:
            total += weight * NODE_SCORES[name](ask)
        return total
    best = np.where(ask.ok, _total(gpus, policy), -np.inf) if room is None else room
    if policy.node == policy.gpu:
        top: Floats = best.max(axis=1, initial=-np.inf)
        return top
    first = best.argmax(axis=1) if best.shape[1] else np.zeros(len(total), dtype=np.int64)
    rows = np.arange(len(total))
    for name, weight in policy.node:
        if name in JOINT:
            total += weight * gpus[name][rows, first]
        else:
            total += weight * NODE_SCORES[name](ask)
    return total


def _choose(
    ask: ScoringInput, terms: WalkOptions, gpus: dict[str, Floats] | None, earlier: list[Bools]
) -> Bools:
    """The GPUs each row gives to the group, as a mask."""
    group, view = ask.group, ask.view
    assert group is not None
    if group.whole and _known_links(ask.tables, view):
        return _nearest_gpus(ask, terms)
    if gpus is not None:
        scores = _total(gpus, terms.policy)
    else:
        names = [(name, weight) for name, weight in terms.policy.gpu if name not in JOINT]
        scores = np.zeros(ask.ok.shape)
        for name, weight in names or [("best-fit", 1.0)]:
            scores = scores + weight * GPU_SCORES[name](ask)
    for held in earlier:
        # An init container costs nothing where the pod's own containers will sit anyway.
        scores = scores + 1e9 * held
    chosen = np.zeros(ask.ok.shape, dtype=np.bool_)
    room = np.where(ask.ok, scores, -np.inf)
    rows = np.arange(len(chosen))
    for _ in range(group.count):
        gpu = room.argmax(axis=1)
        chosen[rows, gpu] |= ask.ok[rows, gpu]
        room[rows, gpu] = -np.inf
    return chosen


def _known_links(tables: NodeTables, view: TableView) -> bool:
    return any(tables.linked[each] for each in np.unique(view.node_class).tolist())


def _nearest_gpus(ask: ScoringInput, terms: WalkOptions) -> Bools:
    chosen = np.zeros(ask.ok.shape, dtype=np.bool_)
    for row, subset in _subsets(ask, terms):
        chosen[row, list(subset)] = True
    return chosen


def _subsets(ask: ScoringInput, terms: WalkOptions) -> list[tuple[int, tuple[int, ...]]]:
    assert ask.group is not None
    found = []
    known: dict[tuple[int, bytes], tuple[int, ...] | None] = {}
    for row in np.flatnonzero(ask.feasible).tolist():
        key = (int(ask.view.node_class[row]), ask.ok[row].tobytes())
        if key not in known:
            node = ask.tables.states[int(ask.view.rows[row])].node
            free = tuple(np.flatnonzero(ask.ok[row]).tolist())
            known[key] = nearest(node, free, ask.group.count, terms.wish)
        subset = known[key]
        if subset is not None:
            found.append((row, subset))
    return found


def _linked(ask: ScoringInput, terms: WalkOptions) -> Bools:
    """The rows that have GPUs as near as demanded."""
    linked = np.zeros(len(ask.feasible), dtype=np.bool_)
    linked[[row for row, _ in _subsets(ask, terms)]] = True
    return linked


def _closeness(ask: ScoringInput, terms: WalkOptions) -> Floats:
    """Points for rows whose best GPUs are near each other, enough to outweigh the policy."""
    points = np.zeros(len(ask.feasible))
    for row, subset in _subsets(ask, terms):
        node = ask.tables.states[int(ask.view.rows[row])].node
        points[row] = 10.0 * quality(node, subset)
    return points


def _without(view: TableView, group: Group, chosen: Bools) -> TableView:
    """The view after the group has taken its GPUs."""
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
