"""Place: a filter that leaves one node, the policy's best, and reserves its GPUs.

The scheduler then has nothing to score, and the bind that follows finds its GPUs reserved.
Nothing is written. A pod that is filtered again keeps its reservation while that still counts;
reservations that are never bound expire in the ledger.
"""

from slicewise.extender.binder import Binder
from slicewise.extender.decisions import (
    Decisions,
    Filtered,
    pass_through,
    screening_reply,
    single_node_reply,
)
from slicewise.extender.protocol import SchedulerRequest


class PlaceFilter:
    """Filters and reserves, under the same lock per pod as a bind."""

    def __init__(self, decisions: Decisions, binder: Binder) -> None:
        self._decisions = decisions
        self._binder = binder

    async def filter(self, args: SchedulerRequest) -> Filtered:
        """The one node on which GPUs are reserved, or why no node fits."""
        await self._binder.throttle()
        async with self._binder.locks.hold(args.pod.uid):
            return self._filter(args)

    def _filter(self, args: SchedulerRequest) -> Filtered:
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
        return screening_reply(args.candidates, self._decisions.screen(query, names))
