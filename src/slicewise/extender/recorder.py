"""Records the allocation of adopted pods: pods bound by others whose system names no GPUs.

One write per pod, with optimistic locking on its version: of two extenders, or of one that
restarts, the first record wins. A write whose answer was lost is settled by reading the pod, and
until then the GPUs stay allocated to it.
"""

import asyncio
import contextlib
from typing import Final

import structlog

from slicewise.cluster import AdoptedPod, Pin, PodSeen
from slicewise.explain.format import describe_container
from slicewise.extender.binder import Binder
from slicewise.extender.metrics import Metrics
from slicewise.kube.outcomes import PodEvent, WriteOutcome, WriteStatus
from slicewise.model import Phase
from slicewise.trust import TrustStore

# Kubelets write a starting pod's status several times a second.
_ATTEMPTS: Final = 5
_TOGETHER: Final = 16
# Changes come in bursts, and hardly any of them is about an adopted pod.
_GATHER_SECONDS: Final = 0.05


class Recorder:
    """Writes the records of adopted pods that the ledger has assigned GPUs."""

    def __init__(
        self,
        binder: Binder,
        metrics: Metrics,
        trust: TrustStore | None = None,
        *,
        pause_seconds: float = 1.0,
    ) -> None:
        self._binder = binder
        self._metrics = metrics
        self._trust = trust
        self._pause = pause_seconds
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_TOGETHER)
        self._told: set[str] = set()
        self._log = structlog.get_logger(__name__).bind()

    async def run(self, dirty: asyncio.Event) -> None:
        """Write records while the ledger is dirty, and retry failures, until cancelled."""
        try:
            while True:
                dirty.clear()
                self.look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(dirty.wait(), self._pause)
                    await asyncio.sleep(_GATHER_SECONDS)
        finally:
            await self.drain()

    def look(self) -> None:
        """Start the missing writes, and report pods that got no GPU."""
        state = self._binder.queries.state
        if not state.ready:
            return
        adopted_pods = state.ledger.adopted_pods()
        self._told &= {adopted.pod.uid for adopted in adopted_pods}
        for adopted in adopted_pods:
            uid = adopted.pod.uid
            if adopted.allocation is None:
                self._report_no_room(adopted)
            elif uid not in self._writing and self._may_choose(adopted):
                self._writing[uid] = asyncio.create_task(self._record(uid))

    async def drain(self) -> None:
        while self._writing:
            await asyncio.wait(set(self._writing.values()))

    async def _record(self, uid: str) -> None:
        try:
            async with self._places, self._binder.locks.hold(uid):
                for _ in range(_ATTEMPTS):
                    adopted = self._find(uid)
                    if adopted is None or not await self._try(adopted):
                        return
        finally:
            del self._writing[uid]

    def _find(self, uid: str) -> AdoptedPod | None:
        state = self._binder.queries.state
        adopted = state.ledger.adopted_pod(uid) if state.ready else None
        return None if adopted is None or adopted.allocation is None else adopted

    async def _try(self, adopted: AdoptedPod) -> bool:
        """Write once; True when the pod had changed, so that an immediate retry makes sense."""
        ledger, pod = self._binder.queries.state.ledger, adopted.pod
        ledger.apply(Pin(pod.uid))
        outcome = await self._write(adopted)
        if outcome.pod is not None and outcome.pod.uid == pod.uid:
            ledger.apply(PodSeen(outcome.pod))
        self._metrics.decided("record", outcome.status.value)
        if outcome.stands:
            self._announce(adopted)
            return False
        if outcome.status is WriteStatus.UNKNOWN:
            # The write may still be carried out, so the GPUs stay allocated.
            return False
        ledger.apply(Pin(pod.uid, pinned=False))
        return outcome.status is WriteStatus.REFUSED and outcome.pod is not None

    async def _write(self, adopted: AdoptedPod) -> WriteOutcome:
        assert adopted.allocation is not None
        pod, binder = adopted.pod, self._binder
        record = binder.record_allocation(pod, adopted.request, adopted.allocation, adopted.node)
        return await binder.write_record(pod, record, version=pod.version)

    def _announce(self, adopted: AdoptedPod) -> None:
        assert adopted.allocation is not None
        each = adopted.allocation.containers
        gpus = "; ".join(describe_container(given, adopted.node) for given in each)
        policy = self._binder.queries.state.planner(None).policy.name
        note = f"{gpus} on node {adopted.node.name}, chosen by policy {policy} for a bound pod"
        self._binder.writer.post_event(
            adopted.pod, PodEvent(reason="GpuAssigned", note=note[:1024])
        )
        self._log.info(
            "pod recorded",
            pod=f"{adopted.pod.namespace}/{adopted.pod.name}",
            node=adopted.node.name,
            gpus=",".join(map(str, adopted.allocation.gpus)),
        )

    def _report_no_room(self, adopted: AdoptedPod) -> None:
        """Post one event about a pod that was bound where too few GPUs are free."""
        if adopted.pod.uid in self._told:
            return
        self._told.add(adopted.pod.uid)
        waits = (
            "it is not started until a pod that holds what it needs is deleted"
            if adopted.node.agent
            else "every GPU there counts as taken until this pod, or one beside it, is deleted"
        )
        note = f"bound to node {adopted.node.name}: {adopted.detail}; {waits}"
        event = PodEvent(reason="GpuNotAssigned", note=note[:1024], warning=True)
        self._binder.writer.post_event(adopted.pod, event)
        self._metrics.decided("record", "NoRoom")
        self._log.warning(
            "pod bound without room",
            pod=f"{adopted.pod.namespace}/{adopted.pod.name}",
            node=adopted.node.name,
            reason=adopted.detail,
        )

    def _may_choose(self, adopted: AdoptedPod) -> bool:
        """Whether the pod starts with what we write.

        In a take-over a pod that runs without a record was given its GPUs by somebody else, and
        its node says which.
        """
        taking_over = self._trust is not None and self._trust.policy.taking_over
        runs = adopted.pod.phase is Phase.RUNNING and len(adopted.node.gpus) > 1
        return adopted.node.agent and not adopted.pod.deleting and not (taking_over and runs)
