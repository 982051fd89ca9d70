"""Leader election on a Lease: one candidate holds it, the others wait until it expires.

A leader that could not renew in time steps down by its own clock, before another can take over
(fencing by time). Each acquisition has an epoch greater than every one before it, for whatever
arrives late nevertheless (fencing by token). A gate may choose among the candidates; it never
replaces the lease, so both kinds of fencing hold whatever the gate says.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf
from typing import Any, Final, Protocol

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.leading.fence import Fence, LeaseTiming, read_clock
from slicewise.kube.reads import decode_answer

_log = structlog.get_logger(__name__)
_RESOURCE: Final = "leases"
EPOCH: Final = "slicewise.io/epoch"
OTHER_DECIDER: Final = "slicewise.io/other-decider"
_MAX_EPOCH: Final = 1 << 53
_FORBIDDEN: Final = (401, 403)
# How a lease that its holder gave up is told from one that somebody else emptied.
_RELEASED_SECONDS: Final = 1
# Renewals under way, and notices of other deciders, change the lease while it is released.
_RELEASE_ATTEMPTS: Final = 3
# Another waits for the lease, and it is given away as soon as the last write has ended.
_GIVING_SECONDS: Final = 0.1
# Without election the lease only tells others that we decide, and is soon free after a crash.
ANNOUNCED: Final = LeaseTiming(lease_seconds=5.0, renew_seconds=3.5, retry_seconds=1.0)


@dataclass(frozen=True, slots=True)
class ElectionClock:
    """Where an election's time comes from; tests move it by hand."""

    clock: Callable[[], float] = read_clock
    """Seconds that never go back."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time of day, for people who read the lease."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """How to wait."""


class _LeaseMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _LeaseMetadata
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


_DECODER: Final = msgspec.json.Decoder(_Lease)


class LeaseGate(Protocol):
    """Chooses which candidate may hold the lease."""

    @property
    def bar(self) -> str | None:
        """Why this candidate may not lead, with who does; None when it may."""

    async def look(self) -> None:
        """Find out again; what cannot be found out stays as it was."""


class Election:
    """One candidate for one lease.

    One that is `alone` expects no other: another holder that lives is told of as a mistake, and
    without any right to leases it leads all the same, until it hears of a newer epoch.
    """

    def __init__(
        self,
        client: Client,
        name: tuple[str, str],
        identity: str,
        *,
        timing: LeaseTiming | None = None,
        time: ElectionClock | None = None,
    ) -> None:
        self.identity = identity
        self.alone = False
        """Whether no other candidate is expected."""
        self.refusal: str | None = None
        """Why the lease may not be used, in the API server's words."""
        self.rival: str | None = None
        """Who else decides though no other is expected; None when nobody was found."""
        self.tell_rival: Callable[[str], None] = lambda _: None
        """Is called with each other decider that was found."""
        self.epoch = 0
        """The epoch of the last acquisition; 0 before the first."""
        self.newest_epoch: Callable[[], int] = lambda: 0
        """The newest epoch that is known from elsewhere; acquisitions go beyond it."""
        self.gate: LeaseGate | None = None
        """Says whether this candidate may hold the lease; without one, whoever is first does."""
        self.idle: Callable[[], bool] = lambda: True
        """Whether no write is under way, so that the lease can be given away."""
        self._client = client
        self._namespace, self._name = name
        self._timing = timing or LeaseTiming()
        self._time = time or ElectionClock()
        self.fence = Fence(self._timing, self._time.clock)
        """Which writes may be sent: those that end before another can lead."""
        self._seen: _LeaseSpec | None = None
        self._seen_at = 0.0
        self._seen_epoch = 0
        self._lease: _Lease | None = None
        self._waits_until = -inf
        self._told_holder: str | None = None

    @property
    def leading(self) -> bool:
        """Whether we may decide at this very moment."""
        return self._holding and self.bar is None

    @property
    def bar(self) -> str | None:
        """Why the gate lets us not lead; None when it does, and when there is none."""
        return None if self.gate is None else self.gate.bar

    @property
    def _holding(self) -> bool:
        """Whether we hold the lease at this very moment, and nobody has decided since we do."""
        return self.fence.open and self.newest_epoch() <= self.epoch

    @property
    def name(self) -> str:
        return f"Lease {self._namespace}/{self._name}"

    @property
    def holder(self) -> str | None:
        """Who held the lease when last looked at."""
        return None if self._seen is None else self._seen.holder_identity or None

    async def run(self, tell: Callable[[bool], None]) -> None:
        """Acquire and renew the lease until cancelled; `tell` hears each change of leadership."""
        told = (False, 0)
        while True:
            if self.fence.open and not self._holding:
                self._step_down()
            else:
                await self._try()
            now = (self.leading, self.epoch if self.leading else 0)
            if now != told:
                word = "leading" if self.leading else "not leading"
                _log.info(word, identity=self.identity, holder=self.holder, epoch=self.epoch)
                told = now
                tell(self.leading)
            await self._time.sleep(self._pause())

    def _step_down(self) -> None:
        """Lead no more, because another has decided since we do."""
        self._find_rival(f"the leader of epoch {self.newest_epoch()}, which is newer than ours")
        self.fence.close()
        # Who has no lease cannot tell when the other ends, and never decides again.
        lasts = self._timing.lease_seconds if self.refusal is None else inf
        self._waits_until = self._time.clock() + lasts

    def _find_rival(self, other: str) -> None:
        if other != self.rival:
            _log.critical(
                "two extenders decide", other=other, identity=self.identity, epoch=self.epoch
            )
            self.rival = other
            self.tell_rival(other)

    async def release(self) -> None:
        """Release the lease, so that another can take over at once; a no-op for others."""
        lease, holding = self._lease, self._holding
        self.fence.close()
        if lease is None or not holding:
            return
        try:
            await self._give_up(lease)
        except KubeError as error:
            _log.warning("lease not released", identity=self.identity, error=str(error))

    async def _give_up(self, lease: _Lease) -> None:
        """Empty the lease; one that changed is read again, and left alone if it is not ours."""
        for attempts_left in reversed(range(_RELEASE_ATTEMPTS)):
            lease.spec = _LeaseSpec(
                holder_identity="",
                lease_duration_seconds=_RELEASED_SECONDS,
                renew_time=_stamp(self._time.now()),
                lease_transitions=lease.spec.lease_transitions,
            )
            try:
                await self._write("update", lease)
            except RefusedError as error:
                if error.code != 409 or not attempts_left:
                    raise
            else:
                return
            # A renewal that was cancelled on the way may have been carried out.
            found = await self._read()
            ours = found is not None and found.spec.holder_identity == self.identity
            if found is None or not ours or _epoch_of(found) != self.epoch:
                return
            lease = found

    def _pause(self) -> float:
        """Seconds until the next attempt: sooner when leadership would expire before that."""
        pause = self._timing.retry_seconds
        left = self.fence.seconds_left
        if left > 0 and self.bar is not None:
            return min(_GIVING_SECONDS, left)
        if left > 0:
            return min(pause, left)
        # Jitter, so that candidates that start together do not retry together.
        return pause * (1 + 0.2 * self._client.chance.random())

    async def _try(self) -> None:
        """Renew the lease, or acquire it when it is free; give it away when the gate says so."""
        if self.gate is not None:
            await self.gate.look()
        began = self._time.clock()
        if began < self._waits_until:
            return
        if self.bar is not None and self._holding:
            # Not renewed from here on: if writes never end, the lease does.
            if self.idle():
                await self.release()
            return
        try:
            lease = await self._read()
            self._seen_epoch = max(self._seen_epoch, _epoch_of(lease))
            # A lease that is gone was not given up: its holder may not know yet.
            free = self._may_take((self._seen or _LeaseSpec()) if lease is None else lease.spec)
            if not free or self.bar is not None:
                self.refusal = None
                self.fence.close()
                await self._announce(lease)
                return
            taken = await self._write("create" if lease is None else "update", self._claim(lease))
        except KubeError as error:
            self._take_failure(error)
            return
        self.refusal = None
        self._observe(taken.spec)
        self._lease = taken
        if self.epoch != _epoch_of(taken):
            self.epoch, self.rival = _epoch_of(taken), None
        self.fence.renew(began)

    async def _announce(self, lease: _Lease | None) -> None:
        """Tell the holder, by its lease, that we would decide as well; once for each holder."""
        if lease is None or self.rival is None or self._told_holder == self.rival:
            return
        self._told_holder = self.rival
        kept = lease.metadata.annotations or {}
        lease.metadata.annotations = {**kept, OTHER_DECIDER: self.identity}
        await self._write("update", lease)

    def _take_failure(self, error: KubeError) -> None:
        code = error.code if isinstance(error, RefusedError) else None
        if code not in _FORBIDDEN:
            # A conflict means that another candidate was faster.
            level = logging.DEBUG if code == 409 else logging.WARNING
            _log.log(level, "lease not renewed", identity=self.identity, error=str(error))
            return
        told = self.refusal is not None
        self.refusal = str(error)
        need = "get, create and update of leases"
        if not self.alone:
            if not told:
                _log.error("lease forbidden", lease=self.name, allow=need, error=self.refusal)
        elif not told:
            _log.warning("not announced to others", lease=self.name, allow=need, error=self.refusal)
            self.epoch = self._next_epoch(None, self._time.now())
            self.fence.remove()

    def _may_take(self, spec: _LeaseSpec) -> bool:
        """Whether the lease is ours, free, or expired."""
        self._observe(spec)
        lasts = float(spec.lease_duration_seconds or 0)
        if spec.holder_identity == self.identity:
            return True
        if not spec.holder_identity and lasts <= _RELEASED_SECONDS:
            return True
        # Whoever takes the holder's name out by hand does not tell the holder.
        return self._time.clock() - self._seen_at >= (lasts or self._timing.lease_seconds)

    def _observe(self, spec: _LeaseSpec) -> None:
        # Only our own clock counts: the times in the lease are of another machine.
        if spec == self._seen:
            return
        same = self._seen is not None and self._seen.holder_identity == spec.holder_identity
        if self.alone and same and spec.holder_identity not in ("", None, self.identity):
            # It was renewed before our eyes, so its holder lives.
            self._find_rival(spec.holder_identity or "")
        self._seen, self._seen_at = spec, self._time.clock()

    def _claim(self, lease: _Lease | None) -> _Lease:
        now = self._time.now()
        before = _LeaseSpec() if lease is None else lease.spec
        ours = before.holder_identity == self.identity
        # Who lost the lease acquires it again, even if nobody else has held it since.
        renews = ours and self._holding and _epoch_of(lease) == self.epoch
        spec = _LeaseSpec(
            holder_identity=self.identity,
            # Whole seconds, and never fewer than we count on ourselves.
            lease_duration_seconds=ceil(self._timing.lease_seconds),
            acquire_time=before.acquire_time if renews else _stamp(now),
            renew_time=_stamp(now),
            lease_transitions=0 if lease is None else (before.lease_transitions or 0) + (not ours),
        )
        metadata = _LeaseMetadata(self._name, self._namespace)
        if lease is not None:
            metadata.resource_version = lease.metadata.resource_version
        epoch = self.epoch if renews else self._next_epoch(lease, now)
        kept = dict((None if lease is None else lease.metadata.annotations) or {})
        other = kept.pop(OTHER_DECIDER, None)
        if other is not None and renews:
            self._find_rival(other)
        metadata.annotations = {**kept, EPOCH: str(epoch)}
        return _Lease(metadata, spec)

    def _next_epoch(self, lease: _Lease | None, now: datetime) -> int:
        """Greater than every epoch before it; by the clock, a deleted lease does not go back."""
        known = max(_epoch_of(lease), self._seen_epoch, self.epoch, self.newest_epoch())
        return max(known + 1, int(now.timestamp()))

    async def _read(self) -> _Lease | None:
        call = Call("get", _RESOURCE, f"{self._folder}/{self._name}")
        try:
            seconds = self._timing.retry_seconds * 2
            content = await self._client.read_once(call, seconds=seconds)
            return decode_answer(_DECODER, call, content)
        except RefusedError as error:
            if error.missing:
                return None
            raise

    async def _write(self, verb: str, lease: _Lease) -> _Lease:
        body: Any = msgspec.to_builtins(lease)
        body["metadata"] = {key: each for key, each in body["metadata"].items() if each is not None}
        path = self._folder if verb == "create" else f"{self._folder}/{self._name}"
        call = Call(verb, _RESOURCE, path)
        content = await self._client.send(call, body, seconds=self._timing.retry_seconds * 2)
        return decode_answer(_DECODER, call, content)

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"


def _epoch_of(lease: _Lease | None) -> int:
    return 0 if lease is None else read_epoch(lease.metadata.annotations)


def read_epoch(annotations: Mapping[str, str] | None) -> int:
    """The epoch that an object was written in; 0 where there is none that can be read."""
    text = (annotations or {}).get(EPOCH, "")
    epoch = int(text) if text.isdecimal() and len(text) < 20 else 0
    return epoch if epoch < _MAX_EPOCH else 0


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
