"""A watch from its first line to its last, after the original's rules or after Kubernetes'."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from slicewise.metricsapi.api_versions import ApiObject
from slicewise.metricsapi.broadcaster import (
    Broadcaster,
    ObjectEvent,
    VersionExpiredError,
    WatchQueue,
)
from slicewise.metricsapi.formats import ResponseFormat
from slicewise.metricsapi.status import write_status

_CHUNK: Final = 64 << 10
# What the API server does when a client names no time.
_SECONDS: Final = (1800.0, 3600.0)
_END_OF_START: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What one client watches and where it starts."""

    form: ResponseFormat
    wanted: Callable[[ApiObject], bool]
    start: Callable[[], tuple[Iterable[ObjectEvent], int]]
    """What it is told first, everything there is or what it missed, and the version of that."""
    seconds: float | None
    """After how long it ends; None never does."""
    bookmark: bool = False
    """Whether it wants to be told where the start ends."""


async def stream_watch(
    broadcaster: Broadcaster, watcher: WatchQueue, watch: WatchRequest
) -> AsyncIterator[bytes]:
    """The lines of a watch, several at once where there are several."""
    subject, form = watch.form.resource.subject, watch.form
    try:
        start, revision = watch.start()
    except VersionExpiredError:
        yield write_expired()
        return
    # Nothing can happen in between, because nothing is awaited.
    broadcaster.subscribe(subject, watcher)
    try:
        for chunk in _join(form.write_event(each) for each in start if watch.wanted(each.item)):
            yield chunk
            # A long start must not keep the others waiting.
            await asyncio.sleep(0)
        if watch.bookmark:
            yield _write_bookmark(form, revision)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(watch.seconds):
                while not watcher.overrun.is_set():
                    lines = [
                        form.write_event(event)
                        for event in await watcher.take()
                        if watch.wanted(event.item)
                    ]
                    if lines:
                        yield b"".join(lines)
    finally:
        broadcaster.unsubscribe(subject, watcher)


def choose_seconds(query: Mapping[str, str], *, kubernetes: bool) -> float | None:
    """After how long a watch ends; the original's never does."""
    if not kubernetes:
        return None
    given = query.get("timeoutSeconds", "")
    return float(given) if given.isdecimal() and int(given) else random.uniform(*_SECONDS)


def write_expired() -> bytes:
    """The line that tells a client of Kubernetes to list again."""
    words = "the version to watch from is no longer known: list again"
    status = write_status(410, "Expired", words)
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


def _join(lines: Iterable[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _write_bookmark(form: ResponseFormat, revision: int) -> bytes:
    metadata = {"resourceVersion": str(revision), "annotations": {_END_OF_START: "true"}}
    body = {
        "kind": form.resource.kind,
        "apiVersion": form.writer.api_version.name,
        "metadata": metadata,
    }
    return msgspec.json.encode({"type": "BOOKMARK", "object": body}) + b"\n"
