"""When this process may decide: it leads, and has seen what was written before it did.

A leader that begins lists the pods once more, by a read that begins after it has the lease. The
former leader's writes ended before that, or are settled by their epoch when they arrive late.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

import structlog

from slicewise.extender.metrics import Metrics
from slicewise.kube.client import Client
from slicewise.kube.events import EventRecorder
from slicewise.kube.leading.lease import Election
from slicewise.kube.outcomes import PodEvent, PodKey

_log = structlog.get_logger(__name__)


class Leadership:
    """An election, and what a new leader does before it decides."""

    def __init__(self, election: Election, fenced: Client) -> None:
        self.election = election
        self._fenced = fenced
        fenced.fence = election.fence
        self.relist: Callable[[], Awaitable[None]] | None = None
        """Returns once everything that was written before the call has been seen."""
        self._seen_epoch = 0
        self._relisting: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that decisions of this process belong to."""
        return self.election.epoch

    @property
    def obstacle(self) -> str | None:
        """Why this process may not decide; None when it may."""
        election = self.election
        if election.leading:
            if self._seen_epoch == election.epoch:
                return None
            return "it has just begun to lead, and lists the pods first"
        if election.bar is not None:
            return election.bar
        if election.rival is not None:
            return f"another extender decides: {election.rival}; run one, or several with election"
        if election.refusal is not None:
            return f"it may not use {election.name}, so it cannot lead: {election.refusal}"
        holder = election.holder
        return "it does not lead" if holder is None else f"it does not lead; {holder} does"

    @property
    def deciding_epoch(self) -> int | None:
        """The epoch in which this process decides at this moment; None while it does not."""
        return self.epoch if self.obstacle is None else None

    async def run(self) -> None:
        """Take part in the election until cancelled."""
        try:
            with self.election.fence.resetting(self._fenced.abort):
                await self.election.run(self._take)
        finally:
            if self._relisting is not None:
                self._relisting.cancel()

    def report_others(self, metrics: Metrics, events: EventRecorder, own: PodKey | None) -> None:
        """Count other deciders, and show each as an event on our own pod where that is known."""

        def tell(other: str) -> None:
            metrics.found_other_decider()
            note = f"{other} decides beside {self.election.identity}; run one extender, or elect"
            if own is not None:
                event = PodEvent(reason="TwoDeciders", note=note, warning=True)
                events.post(own, event)

        self.election.tell_rival = tell

    def _take(self, leading: bool) -> None:
        if self._relisting is not None:
            self._relisting.cancel()
            self._relisting = None
        if leading:
            self._relisting = asyncio.create_task(self._look(self.election.epoch))

    async def _look(self, epoch: int) -> None:
        began = monotonic()
        assert self.relist is not None
        await self.relist()
        self._seen_epoch = epoch
        _log.info("deciding", epoch=epoch, seconds=round(monotonic() - began, 3))
