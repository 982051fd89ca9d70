"""Bind: decide, assume and write, so that two binds never take the same share.

The GPUs are chosen and assumed in the ledger without awaiting anything in between. One write
follows; its answer confirms the assumption or forgets it. A lost answer is settled by reading.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from slicewise.cluster import Assume, Confirm, Extend, Forget, PodSeen
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.explain.pod_query import PodQuery
from slicewise.extender.pod_events import placement_event
from slicewise.extender.protocol import BindingArgs
from slicewise.kube.outcomes import BindOutcome, ClusterWriter, PodName, WriteOutcome, WriteStatus
from slicewise.model import Allocation, Node, Pod, PodRecord, Request, SlicewiseError
from slicewise.placement import StepBudget, explain
from slicewise.state.queries import PodQueries
from slicewise.trust import RecordSigner

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds that never go back."""
WallClock = Callable[[], int]
"""Nanoseconds since 1970."""
_MAX_RESERVED: Final = 1 << 12
# Each bind under way costs the API server and the scheduler a connection and a thread.
_MAX_BINDS: Final = 16
_THROTTLE_SECONDS: Final = 1.0
_FAILED: Final = (WriteStatus.CONFLICT, WriteStatus.GONE, WriteStatus.REFUSED)


@dataclass(frozen=True, slots=True)
class BindTimeouts:
    """How long decisions wait for the API server, and by which clocks."""

    assume_seconds: float = 120.0
    """How long an assumption counts while the outcome of its write is unknown."""
    hold_seconds: float = 60.0
    """How long GPUs are reserved for a pod that the scheduler has not yet come back to bind."""
    settle_seconds: float = 8.0
    """How long to read the pod after a write whose answer was lost."""
    clock: Clock = time.monotonic
    """The clock of deadlines, which must be the state's own."""
    wall: WallClock = time.time_ns
    """The wall clock, for the times in records."""


@dataclass(frozen=True, slots=True)
class BindResult:
    """How a bind ended: no error means that the pod is on the node."""

    error: str = ""
    reason: str = "Bound"
    allocation: Allocation | None = None


@dataclass(frozen=True, slots=True)
class AssumedPlacement:
    """An allocation that the ledger has assumed for a pod, and the record to write."""

    query: PodQuery
    allocation: Allocation
    record: PodRecord
    epoch: int = 0
    """The epoch in which the record was signed."""


class KeyedLocks:
    """Locks by name that exist only while they are held or awaited."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, name: str) -> "_NamedLock":
        """Wait for the lock of this name and keep it for the block."""
        return _NamedLock(self._held, name)


class _NamedLock:
    """One holder of a lock, or one who waits for it."""

    __slots__ = ("_held", "_lock", "_name")

    def __init__(self, held: dict[str, tuple[asyncio.Lock, int]], name: str) -> None:
        self._held = held
        self._name = name

    async def __aenter__(self) -> None:
        known = self._held.get(self._name)
        self._lock, count = (asyncio.Lock(), 0) if known is None else known
        self._held[self._name] = (self._lock, count + 1)
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *ending: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        lock, count = self._held.pop(self._name)
        if count > 1:
            self._held[self._name] = (lock, count - 1)


class Binder:
    """Binds pods, one bind per pod at a time, and completes binds whose client has gone."""

    def __init__(
        self, queries: PodQueries, writer: ClusterWriter, timing: BindTimeouts | None = None
    ) -> None:
        self.queries = queries
        self.writer = writer
        self.signer: RecordSigner | None = None
        """Signs every record; without one, records are as the dialects write them."""
        self.locks = KeyedLocks()
        self._timing = timing or BindTimeouts()
        self._running: set[asyncio.Task[Any]] = set()
        self._held: dict[str, AssumedPlacement] = {}
        self._unsettled: dict[str, AssumedPlacement] = {}

    async def bind(self, args: BindingArgs) -> BindResult:
        """Bind the pod to the node the scheduler chose; idempotent."""
        return await self.finish(self._bind(args))

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that is completed even when its client disconnects."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    @property
    def writing(self) -> int:
        return len(self._running)

    async def throttle(self) -> None:
        """Backpressure: wait while too many binds are under way at the API server."""
        if len(self._running) >= _MAX_BINDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(_THROTTLE_SECONDS):
                    while len(self._running) >= _MAX_BINDS:
                        await asyncio.wait(
                            self._running.copy(), return_when=asyncio.FIRST_COMPLETED
                        )

    async def drain(self) -> None:
        """Wait until no write is under way."""
        while self._running:
            await asyncio.wait(set(self._running))

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node
    ) -> PodRecord:
        """The marks of the pod's system, and our signed record beside them."""
        dialects, now = self.queries.dialects, self._timing.wall()
        if self.signer is None:
            return dialects.record_allocation(pod, request, allocation, node, now_ns=now)
        record = dialects.write_marks(pod, request, allocation, node, now_ns=now)
        rules = self.queries.state.isolation_rules(pod.namespace)
        promised = dialects.add_terms(pod, request, allocation, node, rules)
        signed = self.sign(pod, promised, node)
        return replace(record, annotations={**record.annotations, **signed})

    def sign(self, pod: Pod, allocation: Allocation, node: Node) -> dict[str, str]:
        """Our record of the allocation and its signature, as annotations."""
        signer = self.signer
        if signer is None:
            return {}
        text = write_signed_record(allocation, node, epoch=signer.epoch, now_ns=self._timing.wall())
        return {ALLOCATION: text, SIGNATURE: signer.sign(pod.uid, text)}

    async def write_record(
        self, pod: Pod, record: PodRecord, *, version: int | None = None
    ) -> WriteOutcome:
        """How writing a record ended; a lost answer is settled by reading the pod."""
        try:
            outcome = await self.writer.annotate_pod(pod, record, version=version)
            if outcome.status is not WriteStatus.UNKNOWN:
                return outcome
            seen = await self.writer.read_pod(pod.namespace, pod.name)
        except SlicewiseError as error:
            return WriteOutcome(WriteStatus.UNKNOWN, str(error))
        if seen is None or seen.uid != pod.uid:
            return WriteOutcome(WriteStatus.GONE, "the pod is gone")
        written = record.annotations.items() <= seen.annotations.items()
        if written and record.labels.items() <= seen.labels.items():
            return WriteOutcome(WriteStatus.DONE, pod=seen)
        return WriteOutcome(WriteStatus.UNKNOWN, outcome.detail, seen)

    def assume(
        self, query: PodQuery, node: Node, allocation: Allocation, *, seconds: float | None = None
    ) -> AssumedPlacement | None:
        """Assume the allocation in the ledger; None when another pod took the GPUs first."""
        pod, request = query.pod, query.wanted.request.on(node)
        record = self.record_allocation(pod, request, allocation, node)
        assumption = Assume(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            request=request,
            allocation=allocation,
            deadline=self._timing.clock() + (seconds or self._timing.assume_seconds),
            priority=pod.priority,
        )
        taken = self.queries.state.ledger.apply(assumption)
        return AssumedPlacement(query, allocation, record, self._epoch) if taken else None

    @property
    def _epoch(self) -> int:
        return 0 if self.signer is None else self.signer.epoch

    def hold(self, query: PodQuery, node: Node, allocation: Allocation) -> AssumedPlacement | None:
        """Reserve the GPUs until the scheduler comes back to bind the pod; None as for `assume`."""
        decided = self.assume(query, node, allocation, seconds=self._timing.hold_seconds)
        if decided is not None:
            if len(self._held) >= _MAX_RESERVED:
                kept = {uid: each for uid, each in self._held.items() if self._stands(each)}
                self._held = kept
            self._held[query.pod.uid] = decided
        return decided

    def held(self, query: PodQuery) -> str | None:
        """The node on which GPUs are still reserved for exactly this request."""
        held = self._held.get(query.pod.uid)
        if held is None or held.query.wanted.request != query.wanted.request:
            return None
        return held.allocation.node if self._stands(held) else None

    def _stands(self, held: AssumedPlacement) -> bool:
        """Whether a reservation still counts, on GPUs that are still healthy."""
        state = self.queries.state.ledger.snapshot().get(held.allocation.node)
        known = self.queries.state.ledger.assumption(held.query.pod.uid)
        if state is None or known is None or known[0].allocation is not held.allocation:
            return False
        if held.epoch != self._epoch:
            return False
        return all(state.node.is_usable(gpu) for gpu in held.allocation.gpus)

    async def _bind(self, args: BindingArgs) -> BindResult:
        name = PodName(args.pod_uid or "", args.pod_namespace or "", args.pod_name or "")
        node = args.node or ""
        async with self.locks.hold(name.uid):
            pod = await self._find(name)
            if isinstance(pod, BindResult):
                return pod
            if pod.node is not None:
                return _already(pod, node)
            done = await self._find_done(pod, node)
            if done is not None:
                return done
            decided = self._decide(pod, node)
            if isinstance(decided, BindResult):
                return decided
            return await self._write(decided, node)

    async def _find(self, name: PodName) -> Pod | BindResult:
        """The pod as the watch last showed it, or else as the API server has it."""
        pod = self.queries.state.ledger.pod(name.uid)
        if pod is None:
            pod = await self.writer.read_pod(name.namespace, name.name)
        where = f"{name.namespace}/{name.name}"
        if pod is None:
            return BindResult(f"pod {where} does not exist", "PodGone")
        if pod.uid != name.uid:
            return BindResult(f"pod {where} has UID {pod.uid}: expected {name.uid}", "PodGone")
        if pod.deleting or pod.phase.terminal:
            return BindResult(f"pod {where} is being deleted or has ended", "PodGone")
        return pod

    async def _find_done(self, pod: Pod, node: str) -> BindResult | None:
        """The result of an earlier bind that the watch has not shown yet."""
        ledger = self.queries.state.ledger
        known = ledger.assumption(pod.uid)
        if known is None or not known[1]:
            return None
        # A filter that commits confirms a record without a bind: only the pod can tell.
        seen = await self.writer.read_pod(pod.namespace, pod.name)
        if seen is None or seen.uid != pod.uid or seen.node is None:
            return None
        ledger.apply(PodSeen(seen))
        return _already(seen, node)

    def _decide(self, pod: Pod, node: str) -> AssumedPlacement | BindResult:
        """Choose GPUs on this node and assume them, without awaiting in between."""
        held = self._take_held(pod, node)
        if held is not None:
            return held
        known_node = self.queries.state.snapshot().get(node)
        if self.queries.comes_by_claim(pod, None if known_node is None else known_node.node):
            # The claim is counted by itself, and its GPUs need no record.
            pod = replace(pod, by_claim=True)
        query = self.queries.build(pod)
        if not query.wants_gpu:
            return AssumedPlacement(query, Allocation(node), PodRecord())
        state = query.snapshot.get(node)
        if state is None:
            return BindResult(f"node {node} is not known to Slicewise", "UnknownNode")
        known = self.queries.state.ledger.assumption(pod.uid)
        if known is not None and known[0].allocation.node == node:
            # An earlier write of unknown outcome may yet be found done: try the same again.
            decided = self.assume(query, state.node, known[0].allocation)
            if decided is not None:
                return self._repeat(decided)
        budget = StepBudget()
        placement = query.planner.place_on(query.snapshot, query.wanted, node, budget)
        if placement is None:
            wanted = query.wanted.on(state.node)
            refusal = explain(state, wanted.request, wanted.limits, undecided=budget.ended)
            return BindResult(f"node {node}: {refusal}", refusal.reason.code)
        decided = self.assume(query, state.node, placement.allocation)
        if decided is None:
            return BindResult(f"node {node}: another pod has just taken the GPUs", "Raced")
        return decided

    def _repeat(self, decided: AssumedPlacement) -> AssumedPlacement:
        """The decision with the record of an earlier write of it, whose outcome is unknown."""
        earlier = self._unsettled.pop(decided.query.pod.uid, None)
        if earlier is None or earlier.epoch != decided.epoch:
            return decided
        same = earlier.allocation == decided.allocation
        return replace(decided, record=earlier.record) if same else decided

    def _take_held(self, pod: Pod, node: str) -> AssumedPlacement | None:
        """The reservation made when the pod was filtered, if it still counts."""
        held = self._held.pop(pod.uid, None)
        if held is None or held.allocation.node != node:
            return None
        if not self.queries.state.ready or not self._stands(held):
            return None
        deadline = self._timing.clock() + self._timing.assume_seconds
        return held if self.queries.state.ledger.apply(Extend(pod.uid, deadline)) else None

    async def _write(self, decided: AssumedPlacement, node: str) -> BindResult:
        """Bind the pod in one write, and conclude from its outcome."""
        pod, record = decided.query.pod, decided.record
        try:
            outcome = await self.writer.bind(pod, node, record)
            if outcome.status is WriteStatus.UNKNOWN:
                outcome = await self.writer.settle_bind(
                    pod, node, record, seconds=self._timing.settle_seconds
                )
        except SlicewiseError as error:
            outcome = BindOutcome(WriteStatus.UNKNOWN, str(error))
        return self._conclude(decided, node, outcome)

    def _conclude(self, decided: AssumedPlacement, node: str, outcome: BindOutcome) -> BindResult:
        ledger, pod = self.queries.state.ledger, decided.query.pod
        if outcome.stands:
            ledger.apply(Confirm(pod.uid))
            if decided.query.wants_gpu:
                self.writer.post_event(pod, placement_event(decided.query, decided.allocation))
            return BindResult(allocation=decided.allocation)
        if outcome.pod is not None and outcome.pod.uid == pod.uid:
            ledger.apply(PodSeen(outcome.pod))
        if outcome.status is WriteStatus.OTHER_RECORD:
            return BindResult(reason="BoundAlready")
        where = f"pod {pod.namespace}/{pod.name}"
        if outcome.status in _FAILED:
            ledger.apply(Forget(pod.uid))
            return BindResult(f"{where}: {outcome.status.value}: {outcome.detail}", "WriteFailed")
        # The assumption stays until the watch shows the pod or its deadline passes.
        if len(self._unsettled) >= _MAX_RESERVED:
            self._unsettled.clear()
        self._unsettled[pod.uid] = decided
        return BindResult(
            f"{where}: bind outcome unknown for node {node}: {outcome.detail}", "WriteUnknown"
        )


def _already(pod: Pod, node: str) -> BindResult:
    if pod.node == node:
        return BindResult(reason="BoundAlready")
    return BindResult(f"pod {pod.namespace}/{pod.name} is on node {pod.node}", "BoundElsewhere")
