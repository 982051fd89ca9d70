"""Has the scheduler requeue pending pods after something changed that it cannot see.

That is the quota, and room that was freed by anything but the end of a pod. Neither requeues any
pod; an update of any assigned pod requeues all that an extender refused. So one pod is annotated,
however many are pending: our own, or else one that holds GPUs. Where there is no such pod, the
pending pods are annotated themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, islice
from random import random
from typing import Final

import structlog

from slicewise.dialects.own.pods import FREED, REQUEUED
from slicewise.kube.outcomes import ClusterWriter, PodKey, WriteStatus
from slicewise.model import Pod, PodRecord, SlicewiseError
from slicewise.model.backoff import Backoff
from slicewise.state.cluster_state import ClusterState

# A pod may have been deleted by now; then the next one serves as well.
_TRIES: Final = 5
_MOST: Final = 100
_READY_SECONDS: Final = 1.0
# A pod that is reserved for again and again in vain must not requeue all others every time.
_PAUSES: Final = Backoff(2.0, 120.0)
_RETRIES: Final = Backoff(1.0, 30.0)


class Requeuer:
    def __init__(
        self,
        state: ClusterState,
        writer: ClusterWriter,
        now: Callable[[], str],
        own: PodKey | None = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._state = state
        self._writer = writer
        self._now = now
        self._own = own
        self._sleep = sleep
        self.chance: Callable[[], float] = random
        """The jitter of retries, from 0 to 1."""
        self._log = structlog.get_logger(__name__).bind()

    async def run(self, changed: asyncio.Event, freed: asyncio.Event) -> None:
        """Requeue after every change of the quota and of unseen room, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._run_changed(changed))
            both.create_task(self.run_freed(freed))

    async def _run_changed(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            await self._await_ready()
            changed.clear()
            await self._requeue_surely(REQUEUED)

    async def run_freed(self, freed: asyncio.Event) -> None:
        """Requeue at once when room was freed, and ever more seldom while that goes on."""
        streak = 0
        while True:
            streak = streak + 1 if freed.is_set() else 1
            await freed.wait()
            await self._await_ready()
            freed.clear()
            if await self._requeue_surely(FREED):
                await self._sleep(_PAUSES.delay(streak, 1.0))

    async def _await_ready(self) -> None:
        # Whoever leads now may end before it tells of the change, and we may lead next.
        while not self._state.ready:
            await self._sleep(_READY_SECONDS)

    async def _requeue_surely(self, mark: str) -> int:
        """Requeue pending pods, again and again while no write succeeds."""
        failures = 0
        while (touched := await self.requeue(mark)) is None:
            failures += 1
            await self._sleep(_RETRIES.delay(failures, self.chance()))
            await self._await_ready()
        return touched

    async def requeue(self, mark: str = REQUEUED) -> int | None:
        """Requeue pending pods; how many pods were annotated for it, None if every write failed."""
        waiting = [] if not self._state.ready else list(islice(self._find(bound=False), _MOST))
        if not waiting:
            return 0
        record = PodRecord(annotations={mark: self._now()})
        own = () if self._own is None else (self._own,)
        for pod in islice(chain(own, self._find(bound=True)), _TRIES):
            if await self._touch(pod, record):
                self._log.info("pending pods requeued", pods=len(waiting), touched=pod.name)
                return 1
        touched = sum([await self._touch(pod, record) for pod in waiting[:_TRIES]])
        if touched:
            touched += sum([await self._touch(pod, record) for pod in waiting[_TRIES:]])
        else:
            self._log.warning("pending pods not requeued", pods=len(waiting))
            return None
        self._log.info("pending pods requeued", pods=len(waiting), touched=touched)
        return touched

    def _find(self, *, bound: bool) -> Iterator[Pod]:
        """Pods that ask for GPUs and are on a node, or wait for one."""
        return (
            pod
            for pod in self._state.ledger.gpu_pods()
            if (pod.node is not None) == bound and not pod.deleting
        )

    async def _touch(self, pod: PodKey, record: PodRecord) -> bool:
        try:
            outcome = await self._writer.annotate_pod(pod, record)
        except SlicewiseError:
            return False
        return outcome.status is WriteStatus.DONE
