"""Filter, prioritize and preempt: from a decoded request to a reply.

Nothing is reserved or written here; a pod that asks for no GPU passes unchanged.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from math import isfinite
from typing import Final

from msgspec import Raw

from slicewise.explain.pod_query import PodQuery
from slicewise.extender.binder import Clock
from slicewise.extender.nominations import Nominations
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
from slicewise.placement import Screening, StepBudget, VictimLimits, admitted_gpus, plan_room
from slicewise.placement.budget import NODE_STEPS, PREEMPT_STEPS
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

    def __init__(self, queries: PodQueries, clock: Clock = time.monotonic) -> None:
        self.queries = queries
        self.nominations = Nominations(queries, clock)
        """The pods that victims were named for."""

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

    async def preempt(self, pod: Pod, offered: Mapping[str, Victims]) -> PreemptionReply:
        """The offered nodes on which evictions make room, each with the fewest victims.

        Nodes that the steps of the decision do not reach are left out.
        """
        query = self.queries.build(pod)
        if not query.wants_gpu:
            return _reply({name: each.uids for name, each in offered.items()}, offered)
        if self.nominations.awaits(pod.uid):
            # Room is being made for it, perhaps on a node that the scheduler does not offer.
            return PreemptionReply({})
        exchanges, budget, yielded = 0, StepBudget(PREEMPT_STEPS), PREEMPT_STEPS
        named: dict[str, _NamedVictims] = {}
        for name, victims in offered.items():
            if not budget.left:
                break
            found = self._name_victims(query, name, victims, budget)
            if found is None and exchanges < EXCHANGES:
                exchanges += 1
                # Victims of lower priority may make room that were not offered.
                found = self._name_victims(query, name, victims, budget, exchange=True)
            if found is not None:
                named[name] = found
            if yielded - budget.left > NODE_STEPS:
                yielded = budget.left
                await asyncio.sleep(0)
        return self._nominate(query, named, offered)

    def _nominate(
        self, query: PodQuery, named: Mapping[str, "_NamedVictims"], offered: Mapping[str, Victims]
    ) -> PreemptionReply:
        """The reply, with room kept for the pod; nobody is evicted where pods leave anyway."""
        pod, taken = query.pod, self.nominations.taken(query.pod.uid)
        left = {node: each for node, each in named.items() if not taken.intersection(each.uids)}
        for node, each in left.items():
            if each.awaited and not each.victims:
                self.nominations.nominate(pod, {node: each.awaited}, node)
                return PreemptionReply({})
        self.nominations.nominate(pod, {node: each.uids for node, each in left.items()})
        return _reply({node: each.victims for node, each in left.items()}, offered)

    def _name_victims(
        self,
        query: PodQuery,
        name: str,
        offered: Victims,
        budget: StepBudget,
        *,
        exchange: bool = False,
    ) -> "_NamedVictims | None":
        """The victims that are needed, of those offered or, in exchange, of all of lower priority.

        None when even all of them do not help.
        """
        state = query.snapshot.get(name)
        if state is None or not budget.take(1 + len(offered.uids) // 16):
            return None
        leaving = self.nominations.leaving(state, query.pod.uid)
        taken = self.nominations.taken(query.pod.uid)
        # What is reserved is no pod that could be evicted.
        allowed = {each.uid for each in state.holdings if each.charges and not each.tentative}
        allowed -= self.nominations.find_deleting(state)
        if not exchange:
            allowed.intersection_update(offered.uids)
        part = budget.split(NODE_STEPS)
        limits = VictimLimits(allowed - taken, leaving, part)
        named = _name_victims(query, state, offered, limits)
        budget.settle(part)
        return named


@dataclass(frozen=True, slots=True)
class _NamedVictims:
    """The victims on one node, and the pods that leave there anyway."""

    victims: tuple[str, ...]
    awaited: tuple[str, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        return (*self.victims, *self.awaited)


def _reply(
    victims: Mapping[str, tuple[str, ...]], offered: Mapping[str, Victims]
) -> PreemptionReply:
    chosen = {
        node: MetaVictims([MetaPod(uid) for uid in uids], min(offered[node].violations, len(uids)))
        for node, uids in victims.items()
        if uids
    }
    return PreemptionReply(chosen)


def _name_victims(
    query: PodQuery, state: NodeState, offered: Victims, limits: VictimLimits
) -> _NamedVictims | None:
    # Victims that hold no GPUs are needed for the scheduler's own reasons.
    held = {each.uid for each in state.holdings if each.charges}
    others = tuple(uid for uid in offered.uids if uid not in held)
    plan = plan_room(_without(state, others), query.wanted, query.pod.priority, limits)
    if plan is None:
        return None
    needed = {victim.uid for victim in plan.eviction.victims}
    kept = tuple(uid for uid in offered.uids if uid in needed or uid in others)
    added = tuple(victim.uid for victim in plan.eviction.victims if victim.uid not in kept)
    awaited = tuple(each.uid for each in plan.awaited)
    if awaited:
        return _NamedVictims((*kept, *added), awaited)
    # The GPUs suffice without evictions, so the scheduler evicts for another resource.
    return _NamedVictims((*kept, *added) or offered.uids)


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
