"""Allocates the claims of waiting pods by the engine, on nodes whose devices no scheduler takes.

All claims of a pod are one request: in one step without waiting a node and GPUs are chosen by the
policy and counted in the ledger; only then they are written, several pods at a time. What was
counted stays counted until the claim itself shows what became of the write. Where a scheduler
takes an allocation back, because the node does not suit the pod otherwise, another node is chosen.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from slicewise.cluster import (
    AllocateClaims,
    CachedPodReader,
    ClaimGone,
    ClaimSeen,
    ClaimUsed,
    ReleaseClaim,
)
from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.claim_requests import ClaimObstacleError, OfferedGpus, read_wishes
from slicewise.extender.metrics import Metrics
from slicewise.kube.dra.claim_writes import ClaimWriteOutcome
from slicewise.kube.dra.claiming_pods import ClaimingPod
from slicewise.kube.outcomes import PodEvent, WriteStatus
from slicewise.model import Host, MiB, Pod, Request, SlicewiseError
from slicewise.model.claim import Claim, DeviceClass
from slicewise.placement import UNLIMITED, QuotaLimits
from slicewise.placement.claim_placement import ClaimsPlacement, ClaimsRequest, choose_devices
from slicewise.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)
_TOGETHER: Final = 32
_ATTEMPTS: Final = 5
# Answers to schedulers come between so many decisions.
_AT_ONCE: Final = 8
# How long a node is left alone by a pod that it did not suit, and at most.
_AVOID_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 300.0
_NO_ROOM: Final = "no node that suits the pod has room for its claims"


class AllocationWrites(Protocol):
    """Writes allocations to claims."""

    @property
    def unsettled(self) -> bool:
        """Whether a write whose answer was lost may still be carried out."""

    def write(self, claim: Claim) -> Awaitable[ClaimWriteOutcome]:
        """How writing the devices of a claim ended."""

    def find(self, claim: Claim) -> Awaitable[ClaimWriteOutcome]:
        """The claim as it is now."""


class ClaimDemand(Protocol):
    """The pods that wait with claims, and what there is for them."""

    pods: dict[str, ClaimingPod]
    due: set[str]
    gone: set[str]
    gpus: OfferedGpus
    version: int
    changed: asyncio.Event

    def find_claims(self, waiting: ClaimingPod) -> Iterable[str | None]:
        """The UIDs of the pod's claims; None for one that is not there yet."""

    def allow_nodes(self, waiting: ClaimingPod) -> frozenset[str]:
        """The nodes with devices for the engine that the pod's own demands leave."""


def _post_nothing(pod: Pod, event: PodEvent) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorParts:
    """What the allocator is built from beside the state."""

    demand: ClaimDemand
    writer: AllocationWrites
    classes: Callable[[], Mapping[str, DeviceClass]]
    """The device classes by name, as they are now."""
    post: Callable[[Pod, PodEvent], None] = _post_nothing
    clock: Callable[[], float] = time.monotonic
    pause_seconds: float = 0.25


@dataclass(slots=True)
class _Attempts:
    """What became of earlier choices for a pod."""

    avoid: dict[str, float] = field(default_factory=dict)
    """Nodes that did not suit it, and until when they are left alone."""
    failures: int = 0
    not_before: float = 0.0
    told: str = ""


@dataclass(frozen=True, slots=True)
class _Given:
    """What was written to a claim, for whom and where."""

    pod: str
    node: str
    version: int


class ClaimAllocator:
    """Allocates while this process decides."""

    def __init__(
        self,
        state: ClusterState,
        parts: AllocatorParts,
        metrics: Metrics,
        dialects: Dialects = DEFAULT,
    ) -> None:
        self._state, self._metrics = state, metrics
        self._demand, self._writer, self._classes = parts.demand, parts.writer, parts.classes
        self._post, self._clock, self._pause = parts.post, parts.clock, parts.pause_seconds
        self._requests = CachedPodReader(dialects)
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_TOGETHER)
        self._attempts: dict[str, _Attempts] = {}
        self._given: dict[str, _Given] = {}
        self._claims_of: dict[str, set[str]] = {}
        self._unplaced: set[str] = set()
        self._blocked: set[str] = set()
        """The pods with a claim that the engine does not allocate, as things are."""
        self._seen: tuple[object, int, float] = (None, 0, 0.0)

    @property
    def writing(self) -> int:
        return len(self._writing)

    async def run(self) -> None:
        """Allocate whenever something has changed, and retry, until cancelled."""
        try:
            while True:
                self._demand.changed.clear()
                await self.look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._demand.changed.wait(), self._pause)
        finally:
            await self.drain()

    def _may_decide(self) -> bool:
        return self._state.ready

    async def drain(self) -> None:
        while self._writing:
            await asyncio.wait(set(self._writing.values()))

    async def look(self) -> None:
        """Choose for every pod that is due, those of higher priority and older ones first."""
        demand = self._demand
        for uid in demand.gone:
            self._forget(uid)
        demand.gone.clear()
        if not self._may_decide():
            return
        due = {uid for uid in demand.due if uid not in self._writing}
        demand.due -= due
        due |= self._list_retried()
        hopeless: set[object] = set()
        pods = sorted((demand.pods[uid] for uid in due if uid in demand.pods), key=_rank)
        for at, waiting in enumerate(pods, 1):
            if not self._may_decide():
                demand.due.update(each.pod.uid for each in pods[at - 1 :])
                return
            self._consider(waiting, hopeless)
            if at % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _list_retried(self) -> set[str]:
        """The pods that may find something now, looked for no more often than at each pause."""
        snapshot, version, looked = self._seen
        now = (self._state.snapshot(), self._demand.version, self._clock())
        if now[2] < looked + self._pause:
            return set()
        self._seen = now
        if version != now[1]:
            return self._blocked | self._unplaced
        if snapshot is not now[0] or self._is_time(looked, now[2]):
            return set(self._unplaced)
        return set()

    def _forget(self, uid: str) -> None:
        self._attempts.pop(uid, None)
        self._unplaced.discard(uid)
        self._blocked.discard(uid)
        for claim in self._claims_of.pop(uid, ()):
            self._given.pop(claim, None)
            self._state.ledger.apply(ClaimUsed(claim))

    def _is_time(self, since: float, now: float) -> bool:
        """Whether a pod may find something now only because time has passed."""
        return any(
            since < at <= now
            for uid in self._unplaced
            if uid in self._attempts
            for at in (self._attempts[uid].not_before, *self._attempts[uid].avoid.values())
        )

    def _consider(self, waiting: ClaimingPod, hopeless: set[object]) -> None:
        pod, book = waiting.pod, self._state.ledger.claims
        self._unplaced.discard(pod.uid)
        self._blocked.discard(pod.uid)
        entries = [book.find(uid) if uid else None for uid in self._demand.find_claims(waiting)]
        known = [each for each in entries if each is not None]
        if len(known) < len(entries):
            # It comes to our notice when the missing claim does.
            return
        wanted = [each.claim for each in known if each.claim.spec and each.planned is None]
        if not wanted:
            return
        self._note_taken_back(pod.uid, wanted)
        if self._attempts.get(pod.uid, _Attempts()).not_before > self._clock():
            self._unplaced.add(pod.uid)
            return
        if not self._demand.allow_nodes(waiting):
            # Schedulers allocate its claims on other nodes, and say why they do not.
            self._blocked.add(pod.uid)
            return
        fixed = {node for each in known if each.charged for node in each.charged.nodes}
        nodes = self._choose_nodes(waiting, fixed)
        shape = (pod.namespace, waiting.demands, tuple(each.spec for each in wanted), nodes)
        if shape in hopeless:
            self._unplaced.add(pod.uid)
            return
        try:
            placement = self._place(waiting, wanted, nodes)
        except ClaimObstacleError as error:
            self._blocked.add(pod.uid)
            self._tell(pod, "ClaimNotAllocated", str(error))
            return
        if placement is None or not self._begin(pod, wanted, placement):
            hopeless.add(shape)
            self._unplaced.add(pod.uid)
            self._tell(pod, "ClaimWaits", _NO_ROOM)

    def _choose_nodes(self, waiting: ClaimingPod, fixed: set[str]) -> frozenset[str]:
        nodes = self._demand.allow_nodes(waiting)
        attempts = self._attempts.get(waiting.pod.uid)
        if attempts is not None and attempts.avoid:
            now = self._clock()
            attempts.avoid = {node: at for node, at in attempts.avoid.items() if at > now}
            nodes = nodes.difference(attempts.avoid)
        return nodes.intersection(fixed) if fixed else nodes

    def _place(
        self, waiting: ClaimingPod, wanted: list[Claim], nodes: frozenset[str]
    ) -> ClaimsPlacement | None:
        wishes, constraints = read_wishes(wanted, self._demand.gpus, self._classes())
        if not nodes:
            return None
        asked = ClaimsRequest(
            wishes, nodes, constraints, self._read_host(waiting.pod), waiting.pod.uid
        )
        snapshot, planner = self._state.snapshot(), self._state.planner()
        with self._metrics.stage("claim", "place"):
            return choose_devices(planner, snapshot, asked, self._limit(waiting.pod.namespace))

    def _limit(self, namespace: str) -> Callable[[Request], QuotaLimits]:
        quota, snapshot = self._state.quota, self._state.snapshot()
        if not quota.limits(namespace):
            return lambda _: UNLIMITED
        models: dict[str, MiB] = {}
        for state in snapshot:
            for gpu in state.node.gpus:
                models[gpu.model] = MiB(min(gpu.memory, models.get(gpu.model, gpu.memory)))
        return lambda request: quota.limits_for(namespace, request, snapshot.usage, models)

    def _read_host(self, pod: Pod) -> Host:
        try:
            return self._requests.read_request(pod).host
        except SlicewiseError:
            return Host()

    def _begin(self, pod: Pod, wanted: list[Claim], placement: ClaimsPlacement) -> bool:
        """Count what was chosen and begin to write it; False when it does not fit after all."""
        chosen = tuple(
            replace(
                each,
                devices=tuple(
                    replace(device, share=str(uuid.uuid4()))
                    for device in placement.devices[each.uid]
                ),
            )
            for each in wanted
        )
        if not self._state.ledger.apply(AllocateClaims(chosen, self._read_host(pod))):
            return False
        self._claims_of.setdefault(pod.uid, set()).update(each.uid for each in chosen)
        task = asyncio.create_task(self._write_all(pod, chosen))
        self._writing[pod.uid] = task
        return True

    async def _write_all(self, pod: Pod, claims: tuple[Claim, ...]) -> None:
        try:
            async with self._places:
                done = await asyncio.gather(*(self._write(pod, each) for each in claims))
            if all(done):
                where = claims[0].nodes[0]
                _log.info("claims allocated", pod=f"{pod.namespace}/{pod.name}", node=where)
            else:
                self._delay(pod.uid)
        finally:
            del self._writing[pod.uid]
            self._demand.due.add(pod.uid)
            self._demand.changed.set()

    async def _write(self, pod: Pod, claim: Claim) -> bool:
        """Write one claim; whether it has what was chosen, or needs nothing any more."""
        ledger = self._state.ledger
        for _ in range(_ATTEMPTS):
            with self._metrics.stage("claim", "write"):
                outcome = await self._writer.write(claim)
            self._metrics.decided("claim", _name(outcome.status))
            if outcome.status is WriteStatus.UNKNOWN:
                outcome = await self._settle(claim)
            if outcome.claim is not None:
                ledger.apply(ClaimSeen(outcome.claim))
                if outcome.claim.key == claim.key:
                    given = _Given(pod.uid, claim.nodes[0], outcome.claim.version)
                    if pod.uid in self._demand.pods:
                        self._given[claim.uid] = given
                    return True
            if outcome.status is WriteStatus.GONE:
                ledger.apply(ClaimGone(claim.uid))
                return True
            if outcome.claim is None or outcome.claim.spec is None or not self._may_decide():
                break
            claim = replace(claim, version=outcome.claim.version, protected=outcome.claim.protected)
        _log.warning("claim not allocated", claim=claim.full_name, reason=outcome.detail)
        ledger.apply(ReleaseClaim(claim.uid))
        return False

    async def _settle(self, claim: Claim) -> ClaimWriteOutcome:
        """What became of a write whose answer was lost; it counts until that is known."""
        while True:
            outcome = await self._writer.find(claim)
            found = outcome.claim
            if outcome.status is WriteStatus.GONE or (found is not None and found.spec is None):
                return outcome
            if found is not None and not self._writer.unsettled:
                return replace(outcome, status=WriteStatus.CONFLICT)
            await asyncio.sleep(self._pause)

    def _note_taken_back(self, uid: str, wanted: list[Claim]) -> None:
        """Leave alone for a while the node whose allocation the scheduler took back."""
        for claim in wanted:
            given = self._given.pop(claim.uid, None)
            if given is not None and given.pod == uid and claim.version > given.version:
                attempts = self._attempts.setdefault(uid, _Attempts())
                seconds = min(_AVOID_SECONDS * 2**attempts.failures, _LONGEST_SECONDS)
                attempts.avoid[given.node] = self._clock() + seconds
                attempts.failures += 1
                _log.info("allocation taken back", claim=claim.full_name, node=given.node)

    def _delay(self, uid: str) -> None:
        """Try a pod again only after a while, longer each time."""
        attempts = self._attempts.setdefault(uid, _Attempts())
        seconds = min(2.0**attempts.failures, _LONGEST_SECONDS)
        attempts.not_before = self._clock() + seconds
        attempts.failures += 1

    def _tell(self, pod: Pod, reason: str, text: str) -> None:
        attempts = self._attempts.setdefault(pod.uid, _Attempts())
        if attempts.told != text:
            attempts.told = text
            _log.info("claims wait", pod=f"{pod.namespace}/{pod.name}", reason=text)
            self._post(pod, PodEvent(reason=reason, note=text[:1024]))


def _rank(waiting: ClaimingPod) -> tuple[int, int, str]:
    return -waiting.pod.priority, waiting.pod.created, waiting.pod.name


def _name(status: WriteStatus) -> str:
    return "Allocated" if status is WriteStatus.DONE else status.value
