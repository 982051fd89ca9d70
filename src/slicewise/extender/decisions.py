"""Filter, prioritize and preempt: from a decoded request to a reply.

Nothing is reserved or written here; a pod that asks for no GPU passes unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from math import isfinite
from typing import Final

from msgspec import Raw

from slicewise.explain.pod_query import PodQuery
from slicewise.extender.protocol import (
    CandidateNodes,
    FilterReply,
    HostScore,
    MetaPod,
    MetaVictims,
    PreemptionReply,
    SchedulerRequest,
    Victims,
    keep_nodes,
)
from slicewise.model import WHOLE_GPU, NodeState, Pod, Reason
from slicewise.placement import Screening, admitted_gpus, evict
from slicewise.state.queries import PodQueries

HIGHEST: Final = 10
# Searching for victims beyond those offered takes milliseconds a node, and the scheduler waits.
EXCHANGES: Final = 16
UNKNOWN_NODE: Final = "Node is not known to Slicewise"
TAKEN_ELSEWHERE: Final = "Pod was given to another node"


@dataclass(frozen=True, slots=True)
class Filtered:
    """A filter's reply, how many nodes gave which reason, and nodes to send back whole."""

    reply: FilterReply
    passing: int
    reasons: Mapping[str, int]
    bodies: list[Raw] | None = None


class Decisions:
    """Answers the scheduler from the current snapshot."""

    def __init__(self, queries: PodQueries) -> None:
        self.queries = queries

    def filter(self, args: SchedulerRequest) -> Filtered:
        """Which nodes can take the pod, and why each of the others cannot."""
        query = self.queries.build(args.pod)
        if not query.wants_gpu:
            return pass_through(args.candidates)
        return screening_reply(args.candidates, self.screen(query, args.candidates.names))

    def screen(self, query: PodQuery, names: list[str]) -> Screening:
        """Which of these nodes fit the pod, and the reason of each other."""
        return self.queries.screen(query, names)

    def prioritize(self, args: SchedulerRequest) -> list[HostScore]:
        """Points from 0 to 10 by the policy; only the best node has 10."""
        query, names = self.queries.build(args.pod), args.candidates.names
        if not query.wants_gpu:
            return [HostScore(name, 0) for name in names]
        decision = query.planner.decide(query.snapshot, query.ask(names))
        best = None if decision.placement is None else decision.placement.allocation.node
        points = spread_points(decision.scores, best)
        return [HostScore(name, points.get(name, 0)) for name in names]

    def count_free(self, args: SchedulerRequest) -> list[HostScore]:
        """Free GPUs of the wanted model, at most 10, as nvidia-gpu-scheduler counts."""
        query, names = self.queries.build(args.pod), args.candidates.names
        if not query.wanted.request.constraints.models:
            return [HostScore(name, 0) for name in names]
        return [HostScore(name, _free_gpus(query, name)) for name in names]

    def preempt(self, pod: Pod, offered: Mapping[str, Victims]) -> PreemptionReply:
        """The offered nodes on which evictions make room, each with the fewest victims."""
        query = self.queries.build(pod)
        chosen: dict[str, MetaVictims] = {}
        exchanges = 0
        for name, victims in offered.items():
            kept: tuple[str, ...] | None = victims.uids
            if query.wants_gpu:
                kept = _evict(query, name, victims, frozenset(victims.uids))
            if kept is None and exchanges < EXCHANGES:
                exchanges += 1
                # Victims of lower priority may make room that were not offered.
                kept = _evict(query, name, victims, None)
            if kept:
                violations = min(victims.violations, len(kept))
                chosen[name] = MetaVictims([MetaPod(uid) for uid in kept], violations)
        return PreemptionReply(chosen)


def _evict(
    query: PodQuery, name: str, offered: Victims, allowed: frozenset[str] | None
) -> tuple[str, ...] | None:
    """The victims that are needed, of those allowed; None when even all of them do not help."""
    state = query.snapshot.get(name)
    if state is None:
        return None
    # Victims that hold no GPUs are needed for the scheduler's own reasons.
    held = {each.uid for each in state.holdings if each.charges}
    others = tuple(uid for uid in offered.uids if uid not in held)
    cleared = _without(state, others)
    eviction = evict(cleared, query.wanted, query.pod.priority, allowed)
    if eviction is None:
        return None
    needed = {victim.uid for victim in eviction.victims}
    kept = tuple(uid for uid in offered.uids if uid in needed or uid in others)
    added = tuple(victim.uid for victim in eviction.victims if victim.uid not in kept)
    # The GPUs suffice without evictions, so the scheduler evicts for another resource.
    return (*kept, *added) or offered.uids


def pass_through(candidates: CandidateNodes) -> Filtered:
    count = len(candidates.names)
    reply = FilterReply(failed_nodes={})
    if candidates.bodies is None:
        reply.node_names = candidates.names
    return Filtered(reply, count, {}, candidates.bodies)


def screening_reply(candidates: CandidateNodes, screening: Screening) -> Filtered:
    """The reply to a filter: the nodes that fit, and the reason of each other."""
    failed = {name: reason.phrase for name, reason in screening.reasons.items()}
    never = {
        name: reason.phrase for name, reason in screening.reasons.items() if not reason.preemptible
    }
    for name in screening.unknown:
        failed[name] = never[name] = UNKNOWN_NODE
    kept = keep_nodes(candidates, screening.fits)
    # Schedulers before 1.21 read only FailedNodes.
    reply = FilterReply(
        node_names=kept.names, failed_nodes=failed, failed_and_unresolvable_nodes=never
    )
    reasons = _count(screening.reasons)
    if screening.unknown:
        reasons["UnknownNode"] = len(screening.unknown)
    return Filtered(reply, sum(screening.fits), reasons, kept.bodies)


def committed_reply(candidates: CandidateNodes, node: str, screening: Screening) -> Filtered:
    """The reply of a filter that has committed the pod to one node."""
    told = screening_reply(candidates, screening)
    kept = keep_nodes(candidates, [name == node for name in candidates.names])
    taken = dict.fromkeys(compress(candidates.names, screening.fits), TAKEN_ELSEWHERE)
    taken.pop(node, None)
    reply = FilterReply(
        node_names=kept.names,
        failed_nodes={**(told.reply.failed_nodes or {}), **taken},
        failed_and_unresolvable_nodes=told.reply.failed_and_unresolvable_nodes,
    )
    return Filtered(reply, 1, told.reasons, kept.bodies)


def single_node_reply(candidates: CandidateNodes, node: str) -> Filtered:
    """The reply that leaves one node, without reasons for the others."""
    if candidates.bodies is None:
        return Filtered(FilterReply(node_names=[node], failed_nodes={}), 1, {})
    kept = keep_nodes(candidates, [name == node for name in candidates.names])
    return Filtered(FilterReply(failed_nodes={}), 1, {}, kept.bodies)


def spread_points(scores: Mapping[str, float], best: str | None) -> dict[str, int]:
    """Scores scaled to points: 10 for the best node alone, 0 to 9 for the others."""
    known = [score for score in scores.values() if isfinite(score)]
    if not known:
        return {} if best is None else {best: HIGHEST}
    low, width = min(known), max(known) - min(known)
    points = {
        name: HIGHEST - 1 if width == 0 else int((HIGHEST - 1) * (max(score, low) - low) / width)
        for name, score in scores.items()
    }
    if best in points:
        points[best] = HIGHEST
    return points


def _count(reasons: Mapping[str, Reason]) -> dict[str, int]:
    counts: dict[Reason, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    return {reason.code: count for reason, count in counts.items()}


def _free_gpus(query: PodQuery, name: str) -> int:
    state = query.snapshot.get(name)
    if state is None:
        return 0
    gpus = admitted_gpus(state, query.wanted.request, query.wanted.limits)
    free = sum(state.fits(at, WHOLE_GPU) for at in gpus)
    return min(HIGHEST, free)


def _without(state: NodeState, uids: tuple[str, ...]) -> NodeState:
    for uid in uids:
        state = state.release(uid)
    return state
