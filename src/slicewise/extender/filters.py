"""Filters that reserve GPUs: by writing the decision, for a bind of ours, or for one of others.

Those that write or reserve for our own bind hold the same lock per pod as a bind.
"""

import asyncio
import time
from itertools import compress
from typing import Final

from slicewise.cluster import Confirm, Forget, GpuChooser, Hold, UnassignedPod
from slicewise.explain.pod_query import PodQuery
from slicewise.extender.binder import AssumedPlacement, Binder, Clock
from slicewise.extender.decisions import (
    Decisions,
    Filtered,
    committed_reply,
    pass_through,
    screening_reply,
    single_node_reply,
)
from slicewise.extender.pod_events import placement_event
from slicewise.extender.protocol import FilterReply, SchedulerRequest
from slicewise.kube.outcomes import WriteStatus
from slicewise.placement import Screening

HOLD_SECONDS: Final = 5.0
# It costs nobody but the pod's own namespace, and schedulers may bind late.
QUOTA_SECONDS: Final = 60.0
MOST_NODES: Final = 32


class CommitFilter:
    """Writes the decision on the pod before it replies, as gpu-admission does.

    Such schedulers are configured without a bind verb. The record of an earlier attempt is
    overwritten.
    """

    def __init__(self, decisions: Decisions, binder: Binder) -> None:
        self._decisions = decisions
        self._binder = binder

    async def filter(self, args: SchedulerRequest) -> Filtered:
        """The one node that was chosen, or why no node fits."""
        return await self._binder.finish(self._filter(args))

    async def _filter(self, args: SchedulerRequest) -> Filtered:
        async with self._binder.locks.hold(args.pod.uid):
            query = self._decisions.queries.build(args.pod)
            if not query.wants_gpu:
                return pass_through(args.candidates)
            names = args.candidates.names
            placement = query.planner.place(query.snapshot, query.ask(names))
            state = None if placement is None else query.snapshot.get(placement.allocation.node)
            decided = None
            if placement is not None and state is not None:
                decided = self._binder.assume(query, state.node, placement.allocation)
            # Only now, for nothing may come between what is free and what is assumed.
            await asyncio.sleep(0)
            screening = self._decisions.screen(query, names)
            if decided is None:
                # The pod is bound already: there is nothing to commit.
                return screening_reply(args.candidates, screening)
            return await self._commit(args, decided, screening)

    async def _commit(
        self, args: SchedulerRequest, decided: AssumedPlacement, screening: Screening
    ) -> Filtered:
        pod, record = decided.query.pod, decided.record
        ledger = self._binder.queries.state.ledger
        outcome = await self._binder.write_record(pod, record)
        if outcome.stands:
            ledger.apply(Confirm(pod.uid))
            self._binder.writer.post_event(pod, placement_event(decided.query, decided.allocation))
            return committed_reply(args.candidates, decided.allocation.node, screening)
        if outcome.status is not WriteStatus.UNKNOWN:
            ledger.apply(Forget(pod.uid))
        names = ", ".join(sorted(record.annotations)[:2])
        error = f"pod {pod.namespace}/{pod.name}: cannot write {names}: {outcome.detail}"
        return Filtered(FilterReply(error=error), 0, {"WriteFailed": 1})


class PlaceFilter:
    """Leaves one node, the policy's best, and reserves its GPUs for the bind that follows.

    A pod that is filtered again keeps its reservation while that still counts; reservations that
    are never bound expire in the ledger.
    """

    def __init__(self, decisions: Decisions, binder: Binder) -> None:
        self._decisions = decisions
        self._binder = binder

    async def filter(self, args: SchedulerRequest) -> Filtered:
        """The one node on which GPUs are reserved, or why no node fits."""
        await self._binder.throttle()
        async with self._binder.locks.hold(args.pod.uid):
            return await self._filter(args)

    async def _filter(self, args: SchedulerRequest) -> Filtered:
        names = args.candidates.names
        query = self._decisions.queries.build(args.pod)
        if not query.wants_gpu:
            return pass_through(args.candidates)
        held = self._binder.held(query)
        if held is not None and held in names:
            return single_node_reply(args.candidates, held)
        placement = query.planner.place(query.snapshot, query.ask(names))
        state = None if placement is None else query.snapshot.get(placement.allocation.node)
        if placement is not None and state is not None:
            decided = self._binder.hold(query, state.node, placement.allocation)
            if decided is not None:
                return single_node_reply(args.candidates, placement.allocation.node)
        # The pod fits nowhere, or it is bound already and the scheduler does not know yet.
        await asyncio.sleep(0)
        return screening_reply(args.candidates, self._decisions.screen(query, names))


class HoldFilter:
    """Reserves GPUs for a bind that the scheduler makes itself, on every node it may choose.

    The scheduler shows its choice only by the bound pod. Where many nodes fit, no GPU is reserved:
    it is unlikely that just the chosen one fills up in between. The pod counts in its quota always.
    """

    def __init__(
        self, decisions: Decisions, clock: Clock = time.monotonic, seconds: float = HOLD_SECONDS
    ) -> None:
        self._decisions = decisions
        self._clock = clock
        self._seconds = seconds
        # Which GPUs are reserved matters little, and this chooser caches its choices.
        self._give = GpuChooser()

    def filter(self, args: SchedulerRequest) -> Filtered:
        """Which nodes can take the pod, and why each of the others cannot."""
        query = self._decisions.queries.build(args.pod)
        if not query.wants_gpu:
            return pass_through(args.candidates)
        screening = self._decisions.screen(query, args.candidates.names)
        if self._decisions.queries.dialects.records_nothing(args.pod):
            names = list(compress(args.candidates.names, screening.fits))
            # What is kept for a refused pod is not given back by asking about it.
            if names or not self._decisions.nominations.awaits(args.pod.uid):
                self._hold(query, names)
        return screening_reply(args.candidates, screening)

    def _hold(self, query: PodQuery, names: list[str]) -> None:
        """Reserve GPUs on these nodes, in place of earlier reservations of the pod.

        However many nodes there are, the pod counts in its namespace's quota from now on.
        """
        request, now, queries = query.wanted.request, self._clock(), self._decisions.queries
        few = names if len(names) <= MOST_NODES else []
        states = (query.snapshot.get(name) for name in few)
        found = (
            self._give(state, UnassignedPod(query.pod.uid, request.on(state.node)))
            for state in states
            if state is not None
        )
        hold = Hold(
            query.pod,
            request,
            tuple(each for each in found if each is not None),
            now + self._seconds,
            demands=queries.demand(query) if names else {},
            quota_deadline=now + QUOTA_SECONDS,
        )
        queries.state.ledger.apply(hold)
