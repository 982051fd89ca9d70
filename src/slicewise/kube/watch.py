"""An informer: list a resource in pages, watch from there, list again when the version expired.

Objects that are missing in a later list are reported as gone, unless they are newer than that
list: then the watch that follows reports their deletion.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.objects import BareBody, ListBody, Metadata, StatusBody, WatchBody, read_version
from slicewise.model.backoff import Backoff

_log = structlog.get_logger(__name__)
_LINE: Final = msgspec.json.Decoder(WatchBody)
_BARE: Final = msgspec.json.Decoder(BareBody)
_REFUSAL: Final = msgspec.json.Decoder(StatusBody)


class KubeObject(Protocol):
    """An object off the wire."""

    @property
    def metadata(self) -> Metadata:
        """Who it is and in which version."""


B = TypeVar("B", bound=KubeObject)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Seen(Generic[V_co]):
    """An object was listed, added or changed; `new` when it was not known before."""

    value: V_co
    new: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """An object was deleted, left the selection, or was missing when listed again."""

    key: str
    version: int


WatchEvent = Seen[V] | Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSource(Generic[B, V]):
    """What to watch, how its objects are decoded and what their key is."""

    resource: str
    path: str
    body: type[B]
    read: Callable[[B], V]
    key: Callable[[Metadata], str]
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    page: int = 500
    """How many objects one page of a list holds."""
    watch_seconds: float = 300.0
    """After how long a watch is ended by the server, at least; at most twice as long."""
    resync_seconds: float | None = None
    """After how long everything is listed again though nothing went wrong; none is never."""
    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait after failures."""


class Informer(Generic[B, V]):
    """Watches one resource and hands over every change, in order, in batches."""

    def __init__(
        self,
        client: Client,
        source: WatchSource[B, V],
        handle: Callable[[Sequence[WatchEvent[V]]], None],
        *,
        settings: WatchSettings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.synced = asyncio.Event()
        """Set once a whole list has been handed over, and from then on."""
        self.lists = 0
        """How many whole lists were handed over."""
        self.expiries = 0
        """How often the version had expired, so that everything was listed again."""
        self._client = client
        self._source = source
        self._handle = handle
        self._settings = settings or WatchSettings()
        self._clock = clock or asyncio.get_running_loop().time
        self._known: dict[str, int] = {}
        self._version = ""
        self._listed_at = 0.0
        self._failures = 0
        self._expired = 0
        self._item = msgspec.json.Decoder(source.body)
        # The struct is generic, and its decoder is made for this very resource.
        body: Any = source.body
        self._page: msgspec.json.Decoder[ListBody[B]] = msgspec.json.Decoder(ListBody[body])

    @property
    def known(self) -> int:
        return len(self._known)

    async def run(self) -> None:
        """Watch the resource until cancelled, retrying after every failure."""
        while True:
            try:
                if not self._version or self._resync_due():
                    await self._list()
                await self._watch()
            except (KubeError, msgspec.DecodeError) as error:
                if not isinstance(error, RefusedError) or not error.expired:
                    await self._back_off(error)
                    continue
                # The version to list or watch from has expired: everything is listed again.
                _log.info("watch expired", resource=self._source.resource, reason=error.message)
                self._version = ""
                self.expiries += 1
                self._expired += 1
                if self._expired > 1:
                    # A history shorter than one list takes must not make a tight loop.
                    await self._pause(self._expired)

    async def _back_off(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, msgspec.DecodeError):
            # Reading on from here would meet the same bytes again.
            self._version = ""
        refused = isinstance(error, RefusedError) and not error.retryable
        level = logging.ERROR if refused or self._failures > 5 else logging.WARNING
        _log.log(
            level,
            "watch interrupted",
            resource=self._source.resource,
            failures=self._failures,
            error=str(error),
        )
        await self._pause(
            self._failures, error.retry_after if isinstance(error, RefusedError) else None
        )

    async def _pause(self, failures: int, retry_after: float | None = None) -> None:
        fraction = self._client.chance.random()
        await self._client.sleep(self._settings.backoff.delay(failures, fraction, retry_after))

    def _resync_due(self) -> bool:
        every = self._settings.resync_seconds
        return every is not None and self._clock() - self._listed_at >= every

    async def _list(self) -> None:
        """List everything; objects that are no longer there are handed over as gone."""
        listed: set[str] = set()
        version = ""
        async with contextlib.aclosing(self._pages()) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                self._deliver([self._learn(body, listed) for body in page.items or ()])
        at = read_version(version)
        lost = [key for key, known in self._known.items() if key not in listed and known <= at]
        for key in lost:
            del self._known[key]
        self._deliver([Gone(key, at) for key in lost])
        self._version = version
        self._failures = 0
        self._listed_at = self._clock()
        self.lists += 1
        if not self.synced.is_set() or lost:
            _log.info(
                "listed",
                resource=self._source.resource,
                objects=len(self._known),
                gone=len(lost),
                version=version,
            )
        self.synced.set()

    async def _pages(self) -> AsyncGenerator[ListBody[B], None]:
        """The pages of one list; the next is fetched while one is handed over."""
        fetch: asyncio.Task[bytes] | None = asyncio.ensure_future(self._fetch(""))
        try:
            while fetch is not None:
                page = self._page.decode(await fetch)
                fetch = None
                if page.metadata.continue_:
                    fetch = asyncio.ensure_future(self._fetch(page.metadata.continue_))
                    # One turn of the loop sends the request.
                    await asyncio.sleep(0)
                yield page
        finally:
            if fetch is not None:
                fetch.cancel()
                await asyncio.gather(fetch, return_exceptions=True)

    async def _fetch(self, token: str) -> bytes:
        query = {**self._source.query, "limit": str(self._settings.page)}
        if token:
            query["continue"] = token
        return await self._client.read(
            Call("list", self._source.resource, self._source.path, query)
        )

    def _learn(self, body: B, listed: set[str]) -> Seen[V] | None:
        """The object as a change, unless it is as old as what is known of it."""
        meta = body.metadata
        key, version = self._source.key(meta), read_version(meta.resource_version)
        listed.add(key)
        known = self._known.get(key)
        if version and known is not None and known >= version:
            return None
        self._known[key] = version
        return Seen(self._source.read(body), known is None)

    def _deliver(self, changes: Sequence[WatchEvent[V] | None]) -> None:
        real = [change for change in changes if change is not None]
        if real:
            self._handle(real)

    async def _watch(self) -> None:
        """Hand over changes until the watch ends, its version expires or the connection breaks."""
        seconds = self._settings.watch_seconds * (1 + self._client.chance.random())
        due = self._settings.resync_seconds
        if due is not None:
            seconds = min(seconds, max(1.0, self._listed_at + due - self._clock()))
        query = {
            **self._source.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(seconds)),
        }
        call = Call("watch", self._source.resource, self._source.path, query)
        began = self._clock()
        heard = False
        async with self._client.stream(call, seconds) as chunks:
            async for lines in split_lines(chunks):
                heard = True
                self._failures = 0
                self._take_all(lines)
        if not heard and self._clock() - began < 1.0:
            # A server that ends every watch at once must not be asked in a tight loop.
            self._failures += 1
            await self._pause(self._failures)

    def _take_all(self, lines: Sequence[bytes]) -> None:
        """Hand over the changes in these lines, and those before a line that cannot be taken."""
        changes: list[WatchEvent[V] | None] = []
        try:
            for line in lines:
                changes.append(self._take(line))  # noqa: PERF401 - those before a failure count
        finally:
            self._deliver(changes)

    def _take(self, line: bytes) -> WatchEvent[V] | None:
        """One line of the watch as a change; None for bookmarks."""
        event = _LINE.decode(line)
        if event.type == "ERROR":
            status = _REFUSAL.decode(event.object)
            raise RefusedError(status.code, status.reason, status.message)
        if event.type == "BOOKMARK":
            self._version = _BARE.decode(event.object).metadata.resource_version
            return None
        if event.type == "DELETED":
            meta = _BARE.decode(event.object).metadata
            self._version = meta.resource_version
            key = self._source.key(meta)
            self._known.pop(key, None)
            return Gone(key, read_version(meta.resource_version))
        self._expired = 0
        body = self._item.decode(event.object)
        change = self._learn(body, set())
        self._version = body.metadata.resource_version
        return change


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """The whole lines of each chunk; what follows the last line break of all is left out."""
    rest: list[bytes] = []
    async for chunk in chunks:
        head, found, tail = chunk.rpartition(b"\n")
        if not found:
            rest.append(chunk)
            continue
        rest.append(head)
        lines = b"".join(rest).split(b"\n")
        rest = [tail] if tail else []
        yield [line for line in lines if line]
