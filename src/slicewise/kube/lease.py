"""Leader election on a Lease: one candidate holds it, the others wait until it expires.

A leader that could not renew in time steps down by its own clock, before another can take over
(fencing by time).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from time import monotonic
from typing import Any, Final

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError

_log = structlog.get_logger(__name__)
_RESOURCE: Final = "leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """How long a lease lasts and how it is kept."""

    lease_seconds: float = 15.0
    """For how long others wait after the last renewal they saw."""
    renew_seconds: float = 10.0
    """For how long the leader may go on without renewing."""
    retry_seconds: float = 2.0
    """How often the lease is renewed or looked at."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"retry {self.retry_seconds}, renew {self.renew_seconds}, lease "
                f"{self.lease_seconds} seconds: expected each to be longer than the one before"
            )


@dataclass(frozen=True, slots=True)
class ElectionClock:
    """Where an election's time comes from; tests move it by hand."""

    clock: Callable[[], float] = monotonic
    """Seconds that never go back."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time of day, for people who read the lease."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """How to wait."""


class _LeaseMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str | None = None


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


class Election:
    """One candidate for one lease."""

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
        self._client = client
        self._namespace, self._name = name
        self._timing = timing or LeaseTiming()
        self._time = time or ElectionClock()
        self._seen: _LeaseSpec | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._lease: _Lease | None = None

    @property
    def leading(self) -> bool:
        """Whether we hold the lease at this very moment."""
        renewed = self._renewed_at
        return renewed is not None and self._time.clock() - renewed < self._timing.renew_seconds

    @property
    def holder(self) -> str | None:
        """Who held the lease when last looked at."""
        return None if self._seen is None else self._seen.holder_identity or None

    async def run(self, tell: Callable[[bool], None]) -> None:
        """Acquire and renew the lease until cancelled; `tell` hears each change of leadership."""
        led = False
        while True:
            await self._try()
            if self.leading != led:
                led = self.leading
                word = "leading" if led else "not leading"
                _log.info(word, identity=self.identity, holder=self.holder)
                tell(led)
            await self._time.sleep(self._pause())

    async def release(self) -> None:
        """Release the lease, so that another can take over at once; a no-op for others."""
        lease, leading = self._lease, self.leading
        self._renewed_at = None
        if lease is None or not leading:
            return
        transitions = lease.spec.lease_transitions
        lease.spec = _LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            renew_time=_stamp(self._time.now()),
            lease_transitions=transitions,
        )
        try:
            await self._write("update", lease)
        except KubeError as error:
            _log.warning("lease not released", identity=self.identity, error=str(error))

    def _pause(self) -> float:
        """Seconds until the next attempt: sooner when leadership would expire before that."""
        pause = self._timing.retry_seconds
        if self._renewed_at is None:
            # Jitter, so that candidates that start together do not retry together.
            return pause * (1 + 0.2 * self._client.chance.random())
        left = self._renewed_at + self._timing.renew_seconds - self._time.clock()
        return min(pause, left) if left > 0 else pause

    async def _try(self) -> None:
        """Renew the lease, or acquire it when it is free."""
        began = self._time.clock()
        try:
            lease = await self._read()
            if lease is None:
                taken = await self._write("create", self._claim(None))
            elif self._may_take(lease.spec):
                taken = await self._write("update", self._claim(lease))
            else:
                self._renewed_at = None
                return
        except KubeError as error:
            code = error.code if isinstance(error, RefusedError) else None
            # A conflict means that another candidate was faster.
            level = logging.DEBUG if code == 409 else logging.WARNING
            _log.log(level, "lease not renewed", identity=self.identity, error=str(error))
            return
        self._observe(taken.spec)
        self._lease = taken
        self._renewed_at = began

    def _may_take(self, spec: _LeaseSpec) -> bool:
        """Whether the lease is ours, free, or expired."""
        self._observe(spec)
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        lasts = float(spec.lease_duration_seconds or self._timing.lease_seconds)
        return self._time.clock() - self._seen_at >= lasts

    def _observe(self, spec: _LeaseSpec) -> None:
        # Only our own clock counts: the times in the lease are of another machine.
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._time.clock()

    def _claim(self, lease: _Lease | None) -> _Lease:
        stamp = _stamp(self._time.now())
        before = None if lease is None else lease.spec
        ours = before is not None and before.holder_identity == self.identity
        transitions = 0 if before is None else (before.lease_transitions or 0) + (not ours)
        spec = _LeaseSpec(
            holder_identity=self.identity,
            # Whole seconds, and never fewer than we count on ourselves.
            lease_duration_seconds=ceil(self._timing.lease_seconds),
            acquire_time=before.acquire_time if ours and before is not None else stamp,
            renew_time=stamp,
            lease_transitions=transitions,
        )
        version = None if lease is None else lease.metadata.resource_version
        return _Lease(_LeaseMetadata(self._name, self._namespace, version), spec)

    async def _read(self) -> _Lease | None:
        call = Call("get", _RESOURCE, f"{self._folder}/{self._name}")
        try:
            return _DECODER.decode(
                await self._client.read_once(call, seconds=self._timing.retry_seconds * 2)
            )
        except RefusedError as error:
            if error.missing:
                return None
            raise

    async def _write(self, verb: str, lease: _Lease) -> _Lease:
        body: Any = msgspec.to_builtins(lease)
        if lease.metadata.resource_version is None:
            del body["metadata"]["resourceVersion"]
        path = self._folder if verb == "create" else f"{self._folder}/{self._name}"
        content = await self._client.send(
            Call(verb, _RESOURCE, path), body, seconds=self._timing.retry_seconds * 2
        )
        return _DECODER.decode(content)

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
