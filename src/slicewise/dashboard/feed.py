"""The feed of one reader: everything first, then what changed, as server-sent events.

An event's id is the revision it brings the reader to; a reader that comes back with it is told
only what it missed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from slicewise.dashboard.tables import PageTables

EVENT_STREAM: Final = "text/event-stream"
_HEARTBEAT: Final = b": heartbeat\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    rows: int = 500
    """Nodes in one event, so that the first are drawn while the others are on their way."""
    heartbeat_seconds: float = 10.0
    """How often a reader hears that nothing changed."""
    most: int = 64
    """Readers at the same time."""
    review_seconds: float = 60.0
    """How often it is asked again whether a reader may look."""


async def stream_events(
    tables: PageTables, feed: FeedSettings, version: str, may_look: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Events until the reader leaves or may look no more."""
    loop = asyncio.get_running_loop()
    reviewed = loop.time()
    at = tables.read_version(version) if version else None
    if at is None:
        at = tables.revision
        name = tables.version()
        bodies = list(tables.encode_all(feed.rows))
        for number, body in enumerate(bodies, 1):
            # Only the whole of it is something to go on from.
            yield write_event(body, name if number == len(bodies) else None)
    else:
        yield _HEARTBEAT
    while True:
        if loop.time() - reviewed >= feed.review_seconds:
            reviewed = loop.time()
            if not await may_look():
                return
        try:
            async with asyncio.timeout(feed.heartbeat_seconds):
                await tables.wait(at)
        except TimeoutError:
            yield _HEARTBEAT
            continue
        body, name, at = tables.encode_since(at), tables.version(), tables.revision
        yield write_event(body, name)


def write_event(body: bytes, name: str | None) -> bytes:
    head = b"" if name is None else b"id: %b\n" % name.encode()
    return head + b"data: " + body + b"\n\n"
