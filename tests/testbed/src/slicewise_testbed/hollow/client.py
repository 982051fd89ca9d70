"""An asynchronous client of the API server: writes, and lists followed by watches."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from slicewise_testbed.hollow.wire import Metadata

T = TypeVar("T")
_RETRY_SECONDS = 0.5
_LONGEST_LINE = 4 * 1024 * 1024


class Listing(msgspec.Struct, Generic[T]):
    """A list of objects, and the version it was taken at."""

    metadata: Metadata
    items: list[T]


class Event(msgspec.Struct, Generic[T]):
    """One watch event."""

    type: str
    object: T


class Client:
    """A few kept-open connections to one API server."""

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        self._session = aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=_LONGEST_LINE,
        )

    async def close(self) -> None:
        """The connections are closed."""
        await self._session.close()

    async def write(self, method: str, path: str, body: Any, kind: str = "json") -> int:
        """The status code, after as many tries as it takes to get one that is final."""
        headers = {"Content-Type": f"application/{kind}"}
        content = msgspec.json.encode(body)
        while True:
            try:
                async with self._session.request(
                    method, path, data=content, headers=headers
                ) as answer:
                    await answer.read()
                    # A patch names no version, so a conflict only means: once more.
                    conflict = method == "PATCH" and answer.status == 409
                    if answer.status != 429 and answer.status < 500 and not conflict:
                        return answer.status
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(_RETRY_SECONDS)

    async def follow(
        self,
        path: str,
        kind: type[T],
        *,
        on_list: Callable[[list[T]], None],
        on_event: Callable[[str, T], None],
        **query: str,
    ) -> None:
        """Tell the whole list, then every change, and start over when the watch is lost."""
        listings = msgspec.json.Decoder(Listing[kind])  # type: ignore[valid-type]
        events = msgspec.json.Decoder(Event[kind])  # type: ignore[valid-type]
        while True:
            try:
                async with self._session.get(path, params=query) as answer:
                    answer.raise_for_status()
                    listing = listings.decode(await answer.read())
                on_list(listing.items)
                version = {"resourceVersion": listing.metadata.resource_version}
                watch = {**query, **version, "watch": "true", "allowWatchBookmarks": "true"}
                async with self._session.get(path, params=watch) as answer:
                    answer.raise_for_status()
                    async for line in answer.content:
                        event = events.decode(line)
                        if event.type != "BOOKMARK":
                            on_event(event.type, event.object)
            # A lost connection, an expired version and an error event all mean: list again.
            except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
                await asyncio.sleep(_RETRY_SECONDS)
