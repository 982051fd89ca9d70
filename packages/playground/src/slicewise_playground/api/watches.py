"""Watches: readers of the history that wake on writes and never poll.

A watcher that falls behind the history is told 410 in the stream, as the real server does.
"""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from slicewise.httpd.message import CutError
from slicewise_playground.api.encodings import bookmark, encode_change, encode_event, encode_whole
from slicewise_playground.api.lists import list_page, read_flag, read_number, read_revision
from slicewise_playground.objects.errors import ApiError, expired
from slicewise_playground.objects.resources import ApiResource
from slicewise_playground.objects.selectors import Selection
from slicewise_playground.objects.store import ObjectStore, StoreChange, StoredObject

BOOKMARK_SECONDS = 60.0
CHUNK_BYTES = 256 * 1024


class EventEncoder(Protocol):
    """How a watch draws its events when it does not show whole objects."""

    def __call__(self, kind: str, entry: StoredObject) -> bytes:
        """One line of the watch."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for."""

    revision: int | None
    """Where to begin; None begins with everything that exists."""
    bookmarks: bool
    initial_events: bool
    seconds: float

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "WatchOptions":
        """The options in a query."""
        text = query.get("resourceVersion") or ""
        initial = read_flag(query, "sendInitialEvents")
        seconds = read_number(query, "timeoutSeconds") or random.randint(1800, 3600)
        fresh = text in {"", "0"} or initial
        return cls(
            revision=None if fresh else read_revision(text),
            bookmarks=read_flag(query, "allowWatchBookmarks"),
            initial_events=initial,
            seconds=float(seconds),
        )


class HistoryReader:
    """One reader of one collection's history, on the loop that created it."""

    def __init__(self, store: ObjectStore, collection: str, revision: int) -> None:
        """Read what comes after a revision."""
        self._store = store
        self._home = store.collections[collection]
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()
        with store.lock:
            self._seen = self._home.position(revision)
            self._leave = store.subscribe(collection, self.wake)
        self.revision = revision
        self.cut: bool | None = None

    def wake(self) -> None:
        """Make the reader look again, from any thread."""
        if threading.get_ident() == self._thread:
            self._event.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def close(self) -> None:
        """Stop being woken."""
        self._leave()

    def end(self, *, abrupt: bool) -> None:
        """End the watch from outside, cleanly or by cutting the connection."""
        self.cut = abrupt
        self.wake()

    def take(self, before: float | None = None) -> list[StoreChange]:
        """The changes since the last look, those made before a moment if one is given."""
        with self._store.lock:
            if self._seen < self._home.dropped:
                raise expired(f"too old resource version: {self.revision} ({self._home.floor})")
            changes = self._home.after(self._seen)
            if before is not None:
                changes = [change for change in changes if change.at <= before]
            self._seen += len(changes)
            # Whoever has seen every change is as new as the store itself.
            if self._seen == self._home.total:
                self.revision = self._store.revision
            elif changes:
                self.revision = changes[-1].revision
            return changes

    async def wait(self, seconds: float) -> bool:
        """Whether something happened within the time."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@dataclass(frozen=True, slots=True)
class WatchStream:
    """Everything one watch needs."""

    store: ObjectStore
    resource: ApiResource
    selection: Selection
    options: WatchOptions
    encoder: EventEncoder | None
    delay: Callable[[], float]
    """How many seconds events are held back at present."""

    def start(self) -> tuple[HistoryReader, list[StoredObject]]:
        """A watcher and the objects it begins with; raises when the history is gone."""
        collection = self.resource.collection
        with self.store.lock:
            if self.options.revision is None:
                page = list_page(self.store, self.resource, self.selection, {})
                return HistoryReader(self.store, collection, page.revision), page.entries
            if self.options.revision <= self.store.revision:
                self.store.check_revision(collection, self.options.revision)
            return HistoryReader(self.store, collection, self.options.revision), []

    async def lines(
        self, watcher: HistoryReader, first: list[StoredObject]
    ) -> AsyncIterator[bytes]:
        """The watch as chunks of lines."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.options.seconds
        next_bookmark = loop.time() + BOOKMARK_SECONDS
        try:
            for chunk in self._first_chunks(first, watcher.revision):
                yield chunk
            while watcher.cut is None:
                chunk = self._news(watcher, loop.time())
                if chunk:
                    yield chunk
                now = loop.time()
                if self.options.bookmarks and now >= min(next_bookmark, end):
                    next_bookmark = now + BOOKMARK_SECONDS
                    yield bookmark(self.resource, watcher.revision)
                if now >= end:
                    return
                await watcher.wait(self._pause(now, min(next_bookmark, end)))
            if watcher.cut:
                raise CutError
        except ApiError as error:
            yield encode_event("ERROR", msgspec.json.encode(error.status()))
        finally:
            watcher.close()

    def _pause(self, now: float, until: float) -> float:
        """How long to sleep if nothing happens; held events need a look of their own."""
        delay = self.delay()
        return min(until - now, delay / 4) if delay else until - now

    def _first_chunks(self, first: list[StoredObject], revision: int) -> list[bytes]:
        """The objects that exist at the start, and the bookmark after them."""
        lines = [
            self.encoder("ADDED", entry)
            if self.encoder
            else encode_event("ADDED", encode_whole(self.resource, entry))
            for entry in first
        ]
        if self.options.initial_events and self.options.bookmarks:
            lines.append(bookmark(self.resource, revision, initial=True))
        return join_lines(lines)

    def _news(self, watcher: HistoryReader, now: float) -> bytes:
        """What happened since the last look, as this watch sees it."""
        delay = self.delay()
        changes = watcher.take(now - delay if delay else None)
        floor = self.options.revision or 0
        lines = []
        for change in changes:
            if change.revision <= floor:
                continue
            kind = self._kind(change)
            if kind is None:
                continue
            if self.encoder is None:
                lines.append(encode_change(self.resource, kind, change))
            else:
                entry = change.removed if kind == "DELETED" else change.new
                assert entry is not None
                lines.append(self.encoder(kind, entry))
        return b"".join(lines)

    def _kind(self, change: StoreChange) -> str | None:
        """What the change means to those who see only the selection."""
        before = change.old is not None and self.selection.matches(change.old.object)
        after = change.new is not None and self.selection.matches(change.new.object)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


def join_lines(lines: list[bytes]) -> list[bytes]:
    """The lines in chunks that a connection can carry one at a time."""
    chunks: list[bytes] = []
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            chunks.append(b"".join(batch))
            batch, size = [], 0
    if batch:
        chunks.append(b"".join(batch))
    return chunks
