"""From one change to every watcher: a short history to resume from, and a bounded queue each.

A watcher that does not keep up is cut off and may come back; no other watcher waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from slicewise.metricsapi.api_versions import NODES, PODS, ApiObject, PodObject
from slicewise.metricsapi.documents import make_node_object
from slicewise.metricsapi.registry import STEP, HeldPod, NodeRecord, NodeRegistry
from slicewise.model import SlicewiseError
from slicewise.reports import NodeReport

HISTORY: Final = 8192
# After a restart every agent of a large cluster tells everything within seconds.
QUEUE: Final = 32768


@dataclass(slots=True, eq=False)
class ObjectEvent:
    """One change, and how it was written already for those that watch alike."""

    revision: int
    kind: str
    """ADDED, MODIFIED or DELETED."""
    item: ApiObject
    written: dict[object, bytes] = field(default_factory=dict)

    def write(self, form: object, encode: Callable[["ObjectEvent"], bytes]) -> bytes:
        """The change in a form, encoded once for all who want that form."""
        found = self.written.get(form)
        if found is None:
            found = self.written[form] = encode(self)
        return found


class WatchQueue:
    def __init__(self, limit: int = QUEUE) -> None:
        self.overrun = asyncio.Event()
        """Set when the client did not keep up and has to be cut off."""
        self._limit = limit
        self._queue: deque[ObjectEvent] = deque()
        self._wake = asyncio.Event()

    def put(self, event: ObjectEvent) -> None:
        """One more event, unless the client has fallen too far behind."""
        if self.overrun.is_set():
            return
        if len(self._queue) >= self._limit:
            self._queue.clear()
            self.overrun.set()
        else:
            self._queue.append(event)
        self._wake.set()

    async def take(self) -> list[ObjectEvent]:
        """Everything that has come since the last call; empty once the client is cut off."""
        await self._wake.wait()
        self._wake.clear()
        events = list(self._queue)
        self._queue.clear()
        return events


class VersionExpiredError(SlicewiseError):
    """What happened since that version is no longer known."""


class Broadcaster:
    """Hands every change of the registry to those who watch."""

    _registry: NodeRegistry

    def __init__(self, history: int = HISTORY, queue: int = QUEUE) -> None:
        self._queue = queue
        self._watchers: dict[str, set[WatchQueue]] = {PODS: set(), NODES: set()}
        self._history: dict[str, deque[ObjectEvent]] = {
            PODS: deque(maxlen=history),
            NODES: deque(maxlen=history),
        }
        self._floor = {PODS: 0, NODES: 0}

    def attach(self, registry: NodeRegistry) -> None:
        """Tell of this registry; what happened before is not known."""
        self._registry = registry
        self._floor = dict.fromkeys(self._floor, registry.revision)

    @property
    def watching(self) -> int:
        return sum(map(len, self._watchers.values()))

    def make_watcher(self) -> WatchQueue:
        """A queue that nothing goes into yet."""
        return WatchQueue(self._queue)

    def subscribe(self, subject: str, watcher: WatchQueue) -> None:
        self._watchers[subject].add(watcher)

    def unsubscribe(self, subject: str, watcher: WatchQueue) -> None:
        self._watchers[subject].discard(watcher)

    def since(self, subject: str, revision: int) -> list[ObjectEvent]:
        """What happened after a version; raises VersionExpiredError when that is not all known."""
        newest = self._registry.revision
        if not self._floor[subject] <= revision <= newest or (newest - revision) % STEP:
            raise VersionExpiredError
        return [event for event in self._history[subject] if event.revision > revision]

    def pod_changed(self, held: HeldPod, *, new: bool) -> None:
        report = self._registry.records[held.node].report
        item = PodObject(held, report, held.revision)
        self._publish(PODS, ObjectEvent(held.revision, "ADDED" if new else "MODIFIED", item))

    def pod_gone(self, held: HeldPod, revision: int) -> None:
        item = PodObject(held, NodeReport(node=held.node), revision, gone=self._registry.now())
        self._publish(PODS, ObjectEvent(revision, "DELETED", item))

    def node_changed(self, record: NodeRecord, *, new: bool) -> None:
        view = make_node_object(self._registry, record)
        self._publish(NODES, ObjectEvent(view.revision, "ADDED" if new else "MODIFIED", view))

    def node_gone(self, record: NodeRecord, revision: int) -> None:
        view = replace(make_node_object(self._registry, record), revision=revision)
        self._publish(NODES, ObjectEvent(revision, "DELETED", view))

    def _publish(self, subject: str, event: ObjectEvent) -> None:
        history = self._history[subject]
        if len(history) == history.maxlen:
            self._floor[subject] = history[0].revision
        history.append(event)
        for watcher in self._watchers[subject]:
            watcher.put(event)
