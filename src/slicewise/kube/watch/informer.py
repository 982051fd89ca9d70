"""An informer: list a resource in pages, watch from there, list again when the version expired.

Objects that are missing in a later list are reported as gone, unless they are newer than that
list: then the watch that follows reports their deletion.
Each watch is short. The server ends it with a bookmark, which proves that nothing was held back;
after a watch in which nothing was heard at all, everything is listed again.
Objects that cannot be read, or that a handler fails on, are skipped and reported.
A list that stays older than what was heard before is that of a restored backup: what is known
says nothing of it then, so the informer ends and its process has to start again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NoReturn

import structlog

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, LostError, RefusedError, RestoredError
from slicewise.kube.objects import read_version
from slicewise.kube.watch.bad_objects import BadObjects
from slicewise.kube.watch.list_pages import PAGE, PAGE_BYTES, ListPages
from slicewise.kube.watch.watched_objects import (
    B,
    Listing,
    V,
    WatchedObjects,
    WatchEvent,
    WatchSource,
)
from slicewise.model.backoff import Backoff

_log = structlog.get_logger(__name__)
# What a server may take beyond the end that it was asked for.
_GRACE_SECONDS: Final = 3.0
# A watch after a failure is shorter, so that its bookmark comes before the data counts as stale.
_SHORTEST_SECONDS: Final = 5.0
# An object of the API server has at most a few MiB.
_LINE_BYTES: Final = 16 << 20
# So many lists in a row must be older than what was heard before.
_MOST_OLDER: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    page: int = PAGE
    """How many objects one page of a list holds."""
    page_bytes: int = PAGE_BYTES
    """How large a page may be; of larger objects it holds fewer."""
    watch_seconds: float = 25.0
    """After how long a watch is ended by the server, at least; at most a fifth longer."""
    stale_seconds: float = 42.0
    """After how long without a line of the watch or a whole list the data counts as stale."""
    resync_seconds: float | None = None
    """After how long everything is listed again though nothing went wrong; none is never."""
    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait after failures."""
    bad_backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))
    """How long to wait before everything is listed again because of objects that are bad."""


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
        settings = settings or WatchSettings()
        self.bad = BadObjects(source.resource, settings.bad_backoff)
        """What is skipped at present."""
        self.told_otherwise: Callable[[], Iterable[str]] = tuple
        """The keys of objects that the handler's owner heard of in other ways: those that a list
        which begins later does not show are gone."""
        self._client = client
        self._source = source
        self._settings = settings
        self._clock = clock or asyncio.get_running_loop().time
        self._list_pages = ListPages(
            client, source.resource, source.path, page=settings.page, most=settings.page_bytes
        )
        self._objects = WatchedObjects(source, handle, self.bad, self._clock)
        self._listed_at = 0.0
        self._proven_at: float | None = None
        self._failures = 0
        self._expired = 0
        self._older = 0
        self._begun = 0
        self._completed = 0
        self._wanted_after = -1
        self._handed_over = asyncio.Condition()
        self._round: asyncio.Timeout | None = None

    @property
    def known(self) -> int:
        return len(self._objects.known)

    @property
    def resource(self) -> str:
        return self._source.resource

    @property
    def age(self) -> float:
        """Seconds since it was last proven that nothing is held back; 0 before the first list."""
        return 0.0 if self._proven_at is None else self._clock() - self._proven_at

    @property
    def stale(self) -> bool:
        if self._older:
            return True
        proven, most = self._proven_at, self._settings.stale_seconds
        return proven is not None and self._clock() - proven > most

    async def run(self) -> None:
        """Watch the resource until cancelled, retrying after every failure."""
        while True:
            try:
                await self._follow()
            except Exception as error:
                if isinstance(error, RestoredError) and self._older >= _MOST_OLDER:
                    raise
                if not isinstance(error, RefusedError) or not error.expired:
                    await self._back_off(error)
                    continue
                # The version to list or watch from has expired: everything is listed again.
                _log.info("watch expired", resource=self._source.resource, reason=error.message)
                self._objects.version = ""
                self.expiries += 1
                self._expired += 1
                if self._expired > 1:
                    # A history shorter than one list takes must not make a tight loop.
                    await self._pause(self._expired)

    async def refresh(self) -> None:
        """Return once a whole list that began after this call was handed over.

        A list without a version is a consistent read: whatever was written before it is in it.
        """
        begun = self._wanted_after = self._begun
        if begun and self._round is not None and not self._round.expired():
            self._round.reschedule(0.0)
        async with self._handed_over:
            await self._handed_over.wait_for(lambda: self._completed > begun)

    async def _follow(self) -> None:
        """List where that is due and watch, until the watch ends or a refresh is asked for."""
        try:
            async with asyncio.timeout(None) as self._round:
                if self.stale:
                    # Nobody knows what the server went through meanwhile.
                    self._objects.version = ""
                refreshes = self._completed <= self._wanted_after
                if not self._objects.version or refreshes or self._list_due():
                    await self._list()
                await self._watch()
        except TimeoutError:
            _log.debug("refreshing", resource=self._source.resource)
        finally:
            self._round = None

    async def _back_off(self, error: Exception) -> None:
        self._failures += 1
        known = isinstance(error, KubeError)
        if not known or isinstance(error, RestoredError):
            # Reading on from here would meet the same bytes again.
            self._objects.version = ""
        refused = isinstance(error, RefusedError) and not error.retryable
        grave = refused or not known or self._failures > 5
        _log.log(
            logging.ERROR if grave else logging.WARNING,
            "watch interrupted",
            resource=self._source.resource,
            failures=self._failures,
            error=str(error) if known else f"{type(error).__name__}: {error}",
        )
        await self._pause(
            self._failures, error.retry_after if isinstance(error, RefusedError) else None
        )

    async def _pause(self, failures: int, retry_after: float | None = None) -> None:
        fraction = self._client.chance.random()
        await self._client.sleep(self._settings.backoff.delay(failures, fraction, retry_after))

    def _list_due(self) -> bool:
        every, now = self._settings.resync_seconds, self._clock()
        return self.bad.is_due(now) or (every is not None and now - self._listed_at >= every)

    async def _list(self) -> None:
        """List everything; objects that are no longer there are handed over as gone."""
        self._begun += 1
        number, listing = self._begun, Listing(told=frozenset(self.told_otherwise()))
        async with contextlib.aclosing(self._pages(listing)) as pages:
            async for page in pages:
                self._objects.take_page(page, listing)
        if listing.older:
            self._refuse_older(f"shows {listing.older} of a version before the one that was heard")
        self._older = 0
        lost = self._objects.finish_list(listing)
        self._failures = 0
        self._listed_at = self._proven_at = self._clock()
        self.lists += 1
        if not self.synced.is_set() or lost:
            _log.info(
                "listed",
                resource=self._source.resource,
                objects=self.known,
                gone=lost,
                version=listing.version,
            )
        self.synced.set()
        async with self._handed_over:
            self._completed = number
            self._handed_over.notify_all()

    async def _pages(self, listing: Listing) -> AsyncGenerator[list[B], None]:
        """The pages of one list; the next is fetched while one is handed over."""
        fetch: asyncio.Task[bytes] | None = asyncio.ensure_future(self._fetch(""))
        try:
            while fetch is not None:
                metadata, page = self._objects.decode_page(await fetch, listing)
                if not metadata.resource_version:
                    raise LostError(f"a list of {self.resource} has no version")
                self._check_age(metadata.resource_version)
                listing.version, fetch = metadata.resource_version, None
                if metadata.continue_:
                    fetch = asyncio.ensure_future(self._fetch(metadata.continue_))
                    # One turn of the loop sends the request.
                    await asyncio.sleep(0)
                yield page
        finally:
            if fetch is not None:
                fetch.cancel()
                await asyncio.gather(fetch, return_exceptions=True)

    def _check_age(self, version: str) -> None:
        """Raise for a list that is older than what was heard; a list shows what is newest."""
        at, newest = read_version(version), self._objects.newest
        if 0 < at < newest:
            self._refuse_older(f"is of version {at}, after {newest} was heard")

    def _refuse_older(self, how: str) -> NoReturn:
        self._older += 1
        raise RestoredError(
            f"a list of {self.resource} {how}: the API server's data were restored from a backup"
        )

    async def _fetch(self, token: str) -> bytes:
        return await self._list_pages.read(self._source.query, token)

    async def _watch(self) -> None:
        """Hand over changes until the watch ends, its version expires or the connection breaks."""
        seconds = self._choose_seconds()
        query = {
            **self._source.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._objects.version,
            "timeoutSeconds": str(seconds),
        }
        call = Call("watch", self._source.resource, self._source.path, query)
        began, heard = self._clock(), False
        self._end_when_due()
        try:
            async with self._client.stream(call, seconds + _GRACE_SECONDS) as chunks:
                async for lines in split_lines(chunks):
                    heard = self._take(lines) or heard
                    self._end_when_due()
                    if self.bad.is_due(self._clock()):
                        return
        finally:
            took = self._clock() - began
            if not heard and took >= seconds - 1:
                # A real server sends a bookmark at the end, so this silence proves nothing.
                self._objects.version = ""
        if not heard and took < 1.0:
            # A server that ends every watch at once must not be asked in a tight loop.
            self._failures += 1
            await self._pause(self._failures)

    def _end_when_due(self) -> None:
        """Have the watch end when everything is to be listed again because of a bad object."""
        due = self.bad.due
        if due is not None and self._round is not None and self._round.when() is None:
            left = max(0.0, due - self._clock())
            self._round.reschedule(asyncio.get_running_loop().time() + left)

    def _choose_seconds(self) -> int:
        """How long the next watch lasts; its bookmark must come before the data is stale."""
        settings, now = self._settings, self._clock()
        seconds = settings.watch_seconds * (1 + self._client.chance.random() / 5)
        left = settings.stale_seconds - self.age - _SHORTEST_SECONDS
        seconds = min(seconds, max(_SHORTEST_SECONDS, left))
        if settings.resync_seconds is not None:
            seconds = min(seconds, self._listed_at + settings.resync_seconds - now)
        return max(1, int(seconds))

    def _take(self, lines: Sequence[bytes]) -> bool:
        """Hand over the changes in these lines; false when none of them was whole."""
        before = self._objects.frames
        self._objects.take_lines(lines)
        if self._objects.frames == before:
            return False
        self._proven_at = self._clock()
        self._failures = self._expired = 0
        return True


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """The whole lines of each chunk; what follows the last line break of all is left out."""
    rest: list[bytes] = []
    size = 0
    async for chunk in chunks:
        head, found, tail = chunk.rpartition(b"\n")
        if not found:
            rest.append(chunk)
            size += len(chunk)
            if size > _LINE_BYTES:
                raise LostError(f"a line of a watch is over {_LINE_BYTES} bytes")
            continue
        rest.append(head)
        lines = b"".join(rest).split(b"\n")
        rest, size = [tail] if tail else [], len(tail)
        yield [line for line in lines if line]
