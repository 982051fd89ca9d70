"""Objects in memory with one revision counter, and a bounded history of changes per collection.

A stored object is never changed in place: each write stores a new version, encoded once.
Readers of the history wake on writes; one that fell behind the history learns that it expired.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import msgspec

from slicewise_playground.objects.errors import expired, too_large_revision
from slicewise_playground.objects.resources import RESOURCES, Object

StoreKey: TypeAlias = tuple[str, str]

HISTORY = 20_000
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of one object; `encoded` leaves out kind and apiVersion."""

    object: Object
    encoded: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One write: what was there and what is there now."""

    revision: int
    old: StoredObject | None
    new: StoredObject | None
    removed: StoredObject | None
    """The old object under the revision of this write, for those who stop seeing it."""
    at: float
    frames: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Encoded watch events, shared by all watchers that need the same one."""


class StoredCollection:
    """The objects of one storage and the history of their changes."""

    def __init__(self, history: int, revision: int) -> None:
        """Start empty; changes up to `revision` are not in the history."""
        self.entries: dict[StoreKey, StoredObject] = {}
        self.changes: deque[StoreChange] = deque()
        self.dropped = 0
        self.floor = revision
        self.wakers: set[Callable[[], None]] = set()
        self._history = history
        self._keys: list[StoreKey] | None = None

    def ordered(self) -> list[StoreKey]:
        """The keys in order of namespace and name."""
        if self._keys is None:
            self._keys = sorted(self.entries)
        return self._keys

    def record(self, key: StoreKey, change: StoreChange) -> None:
        """Apply one change and remember it."""
        if change.new is None:
            del self.entries[key]
            self._keys = None
        else:
            if key not in self.entries:
                self._keys = None
            self.entries[key] = change.new
        self.changes.append(change)
        while len(self.changes) > self._history:
            self.floor = self.changes.popleft().revision
            self.dropped += 1

    def forget(self, revision: int) -> None:
        """Drop the history, as if everything up to the revision were compacted."""
        self.dropped += len(self.changes)
        self.changes.clear()
        self.floor = revision

    @property
    def total(self) -> int:
        """How many changes were ever recorded."""
        return self.dropped + len(self.changes)

    def position(self, revision: int) -> int:
        """How many changes were recorded up to a revision inside the history."""
        later = 0
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            later += 1
        return self.total - later

    def after(self, position: int) -> list[StoreChange]:
        """The changes recorded after a position, oldest first."""
        tail = list(islice(reversed(self.changes), self.total - position))
        tail.reverse()
        return tail

    def at(self, revision: int) -> dict[StoreKey, StoredObject]:
        """The objects as they were at a revision inside the history."""
        entries = dict(self.entries)
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            entry = change.old or change.new
            assert entry is not None
            key = key_of(entry.object)
            if change.old is None:
                entries.pop(key, None)
            else:
                entries[key] = change.old
        return entries


class ObjectStore:
    """All collections under one revision counter."""

    def __init__(self, history: int = HISTORY, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty, keeping so many changes per collection."""
        self.lock = threading.RLock()
        self.revision = 1
        self._clock = clock
        names = {resource.collection for resource in RESOURCES}
        self.collections = {name: StoredCollection(history, self.revision) for name in names}

    def get(self, collection: str, key: StoreKey) -> StoredObject | None:
        """The current version of an object."""
        return self.collections[collection].entries.get(key)

    def put(self, collection: str, item: Object) -> StoredObject:
        """Store a new version under the next revision and wake the readers."""
        with self.lock:
            key = key_of(item)
            home = self.collections[collection]
            old = home.entries.get(key)
            entry = self._stamp(item)
            hidden = _restamp(old, entry)
            home.record(key, StoreChange(entry.revision, old, entry, hidden, self._clock()))
            self._wake(home)
            return entry

    def remove(self, collection: str, key: StoreKey) -> StoredObject:
        """Remove an object and return its last version, under the revision of the removal."""
        with self.lock:
            home = self.collections[collection]
            old = home.entries[key]
            gone = self._stamp(old.object)
            home.record(key, StoreChange(gone.revision, old, None, gone, self._clock()))
            self._wake(home)
            return gone

    def forget(self, collections: Iterable[str] | None = None) -> None:
        """Expire the history of these collections, or of all."""
        with self.lock:
            # The counter moves so that a client at the newest revision has expired as well.
            self.revision += 1
            for name in collections or self.collections:
                self.collections[name].forget(self.revision)

    def check_revision(self, collection: str, revision: int) -> None:
        """Raise when the history after a revision is incomplete or not written yet."""
        floor = self.collections[collection].floor
        if revision > self.revision:
            raise too_large_revision(revision, self.revision)
        if revision < floor:
            raise expired(f"too old resource version: {revision} ({floor})")

    def subscribe(self, collection: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` on every change until the returned function is called."""
        wakers = self.collections[collection].wakers
        with self.lock:
            wakers.add(wake)

        def leave() -> None:
            with self.lock:
                wakers.discard(wake)

        return leave

    def _stamp(self, item: Object) -> StoredObject:
        """The item as a version under the next revision."""
        self.revision += 1
        stamped = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.revision)}}
        return StoredObject(stamped, _ENCODER.encode(stamped), self.revision)

    def _wake(self, home: StoredCollection) -> None:
        """Tell every reader of the collection."""
        for wake in tuple(home.wakers):
            wake()


def key_of(item: Object) -> StoreKey:
    """The key of an object: its namespace, empty for cluster objects, and its name."""
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _restamp(old: StoredObject | None, new: StoredObject) -> StoredObject | None:
    """The old object under the new revision, encoded only if somebody needs it."""
    if old is None:
        return None
    metadata = {
        **old.object["metadata"],
        "resourceVersion": new.object["metadata"]["resourceVersion"],
    }
    return StoredObject({**old.object, "metadata": metadata}, b"", new.revision)
