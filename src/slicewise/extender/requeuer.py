"""Has the scheduler requeue pending pods after the quota changed.

A change of a ConfigMap requeues no pod; an update of any assigned pod requeues all that an extender
refused. So one pod is annotated, however many are pending: our own, or else one that holds GPUs.
Where there is no such pod, the pending pods are annotated themselves.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final

import structlog

from slicewise.kube.outcomes import ClusterWriter, PodKey, WriteStatus
from slicewise.model import Pod, PodRecord, SlicewiseError
from slicewise.state.live import ClusterState

REQUEUED: Final = "slicewise.io/quota-changed"
# A pod may have been deleted by now; then the next one serves as well.
_TRIES: Final = 5
_MOST: Final = 100


class Requeuer:
    def __init__(
        self,
        state: ClusterState,
        writer: ClusterWriter,
        now: Callable[[], str],
        own: PodKey | None = None,
    ) -> None:
        self._state = state
        self._writer = writer
        self._now = now
        self._own = own
        self._log = structlog.get_logger(__name__).bind()

    async def run(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            await self.requeue()

    async def requeue(self) -> int:
        """Requeue pending pods; how many pods were annotated for it."""
        waiting = [] if not self._state.ready else list(islice(self._find(bound=False), _MOST))
        if not waiting:
            return 0
        record = PodRecord(annotations={REQUEUED: self._now()})
        own = () if self._own is None else (self._own,)
        for pod in islice(chain(own, self._find(bound=True)), _TRIES):
            if await self._touch(pod, record):
                self._log.info("pending pods requeued", pods=len(waiting), touched=pod.name)
                return 1
        touched = [await self._touch(pod, record) for pod in waiting]
        self._log.info("pending pods requeued", pods=len(waiting), touched=sum(touched))
        return sum(touched)

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
