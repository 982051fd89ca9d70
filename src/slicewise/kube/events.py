"""Events for `kubectl describe`: best effort, deduplicated and rate limited.

Posting never waits. An event that cannot be sent in time is dropped and counted.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.outcomes import PodEvent, PodKey, PodName

_log = structlog.get_logger(__name__)
_NOTE_LETTERS: Final = 1024
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRate:
    """How fast events are sent, and how many are queued and remembered."""

    each_second: float = 20.0
    """Events sent in a second, in the long run."""
    while_busy: float = 2.0
    """Events sent in a second while there is something better to do."""
    burst: int = 100
    """Events sent at once after a quiet time."""
    waiting: int = 2000
    """Events that may wait; more are dropped."""
    remembered: int = 4000
    """Events whose repetitions are merged into them."""


@dataclass(slots=True)
class _Series:
    pod: PodKey
    event: PodEvent
    first: datetime
    last: datetime
    count: int = 0
    name: str | None = None


_Key = tuple[str, str, str]


class EventRecorder:
    """Queues events and posts them at a limited rate (a token bucket)."""

    def __init__(
        self,
        client: Client,
        component: str = "slicewise",
        *,
        pace: EventRate | None = None,
        clock: Callable[[], float] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.dropped = 0
        """How many events were dropped."""
        self.busy: Callable[[], bool] = lambda: False
        """Whether more important writes are under way; events wait for them."""
        self._client = client
        self._component = component
        self._pace = pace or EventRate()
        self._clock = clock or asyncio.get_running_loop().time
        self._now = now or (lambda: datetime.now(UTC))
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._waiting: OrderedDict[_Key, None] = OrderedDict()
        self._awake = asyncio.Event()
        self._tokens = float(self._pace.burst)
        self._filled_at = self._clock()

    def post(self, pod: PodKey, event: PodEvent) -> None:
        """Queue an event; a repeated one only raises the count of the first."""
        key = (pod.uid, event.reason, event.note)
        if key not in self._waiting and len(self._waiting) >= self._pace.waiting:
            self.dropped += 1
            return
        now = self._now()
        series = self._series.get(key)
        if series is None:
            named = PodName(pod.uid, pod.namespace, pod.name)
            series = self._series[key] = _Series(named, event, now, now)
        series.count += 1
        series.last = now
        self._series.move_to_end(key)
        self._forget_old()
        self._waiting[key] = None
        self._awake.set()

    async def run(self) -> None:
        while True:
            await self._awake.wait()
            while self._waiting:
                await self._take_token()
                key, _ = self._waiting.popitem(last=False)
                series = self._series.get(key)
                if series is not None:
                    await self._send(series)
            self._awake.clear()

    def _forget_old(self) -> None:
        while len(self._series) > self._pace.remembered:
            key, _ = self._series.popitem(last=False)
            if key in self._waiting:
                del self._waiting[key]
                self.dropped += 1

    async def _take_token(self) -> None:
        while True:
            now = self._clock()
            busy = self.busy()
            pace = self._pace.while_busy if busy else self._pace.each_second
            gained = (now - self._filled_at) * pace
            # Tokens saved in quiet times are not spent in busy ones.
            most = 1.0 if busy else float(self._pace.burst)
            self._tokens = min(most, self._tokens + gained)
            self._filled_at = now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            wait = (1 - self._tokens) / pace
            await self._client.sleep(min(wait, _LOOK_SECONDS) if busy else wait)

    async def _send(self, series: _Series) -> None:
        try:
            if series.name is not None and await self._recount(series):
                return
            await self._create(series)
        except KubeError as error:
            self.dropped += 1
            _log.warning(
                "event not posted",
                pod=f"{series.pod.namespace}/{series.pod.name}",
                reason=series.event.reason,
                error=str(error),
            )

    async def _recount(self, series: _Series) -> bool:
        """Update the count of a posted event; False when it no longer exists."""
        body = {"count": series.count, "lastTimestamp": _stamp(series.last)}
        path = f"{_path(series.pod)}/{series.name}"
        try:
            await self._client.send(Call("patch", "events", path), body, content_type=MERGE_PATCH)
        except RefusedError as error:
            # Servers drop events after an hour.
            if error.missing:
                return False
            raise
        return True

    async def _create(self, series: _Series) -> None:
        name = f"{series.pod.name[:220]}.{self._client.chance.getrandbits(64):016x}"
        body = self._body(series, name)
        await self._client.send(Call("create", "events", _path(series.pod)), body)
        series.name = name

    def _body(self, series: _Series, name: str) -> dict[str, Any]:
        pod, event = series.pod, series.event
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "message": event.note[:_NOTE_LETTERS],
            "count": series.count,
            "firstTimestamp": _stamp(series.first),
            "lastTimestamp": _stamp(series.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }


def _path(pod: PodKey) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/events"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
