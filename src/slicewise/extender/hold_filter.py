"""A filter that reserves GPUs for a bind that the scheduler makes itself.

A scheduler that binds by itself shows its choice only by the bound pod. Until then GPUs are
reserved on every node it may choose, for as long as a bind takes. Where many nodes fit, nothing
is reserved: it is unlikely that just the chosen one fills up in between.
"""

import time
from itertools import compress
from typing import Final

from slicewise.cluster import GpuChooser, Hold, UnassignedPod
from slicewise.explain.pod_query import PodQuery
from slicewise.extender.binder import Clock
from slicewise.extender.decisions import Decisions, Filtered, pass_through, screening_reply
from slicewise.extender.protocol import SchedulerRequest

HOLD_SECONDS: Final = 5.0
MOST_NODES: Final = 32


class HoldFilter:
    """Filters, and reserves GPUs on each of the few nodes that fit."""

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
            self._hold(query, names if len(names) <= MOST_NODES else [])
        return screening_reply(args.candidates, screening)

    def _hold(self, query: PodQuery, names: list[str]) -> None:
        """Reserve GPUs on these nodes, in place of earlier reservations of the pod."""
        request, deadline = query.wanted.request, self._clock() + self._seconds
        claim = UnassignedPod(query.pod.uid, request)
        states = (query.snapshot.get(name) for name in names)
        found = (self._give(state, claim) for state in states if state is not None)
        allocations = tuple(each for each in found if each is not None)
        self._decisions.queries.state.ledger.apply(Hold(query.pod, request, allocations, deadline))
