"""A filter that commits, as gpu-admission's does: it writes the decision on the pod itself.

Such schedulers are configured without a bind verb, so the best node is chosen, assumed and
recorded on the pod before the reply. The record of an earlier attempt is overwritten.
"""

from slicewise.cluster import Confirm, Forget
from slicewise.extender.binder import AssumedPlacement, Binder
from slicewise.extender.decisions import (
    Decisions,
    Filtered,
    committed_reply,
    pass_through,
    screening_reply,
)
from slicewise.extender.pod_events import placement_event
from slicewise.extender.protocol import FilterReply, SchedulerRequest
from slicewise.kube.outcomes import WriteStatus
from slicewise.placement import Screening


class CommitFilter:
    """Filters and commits, under the same lock per pod as a bind."""

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
            screening = self._decisions.screen(query, names)
            placement = query.planner.place(query.snapshot, query.ask(names))
            state = None if placement is None else query.snapshot.get(placement.allocation.node)
            if placement is None or state is None:
                return screening_reply(args.candidates, screening)
            decided = self._binder.assume(query, state.node, placement.allocation)
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
