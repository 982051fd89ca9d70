"""An API server behind the interface of the client, on a moved clock, that lies when told to.

It keeps true objects and their history. What it sends of them can be garbled line by line or page
by page, repeated, held back for good, or answered by silence.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from random import Random

from slicewise.kube.errors import LostError, TooLargeError

Garble = Callable[[bytes], bytes]


class MovedClock:
    """Time passes when somebody waits, and costs nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1)
            await asyncio.sleep(0)


def write_pod(name: str, version: int, **spec: object) -> dict[str, object]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], **spec}}


class LyingServer:
    """Holds pods by name; offers what an informer calls of a client."""

    def __init__(self, page: int = 100) -> None:
        self.clock = MovedClock()
        self.chance = Random(1)
        self.pods: dict[str, dict[str, object]] = {}
        self.version = 1
        self.garble_line: Garble = lambda line: line
        self.garble_page: Garble = lambda content: content
        self.silent_watches = False
        self.silent_lists = False
        self.bookmarks = True
        self.lists = 0
        self.largest_page = 0
        self._history: list[tuple[int, bytes]] = []
        self._page = page

    def put(self, name: str, **spec: object) -> None:
        kind = "MODIFIED" if name in self.pods else "ADDED"
        self.version += 1
        self.pods[name] = write_pod(name, self.version, **spec)
        self._tell(kind, self.pods[name])

    def delete(self, name: str) -> None:
        self.version += 1
        del self.pods[name]
        self._tell("DELETED", write_pod(name, self.version))

    async def sleep(self, seconds: float) -> None:
        await self.clock.wait(seconds)

    async def read(self, call) -> bytes:
        if self.silent_lists:
            await self.clock.wait(30.0)
            raise LostError("no answer")
        self.lists += 1
        await asyncio.sleep(0)
        start = int(call.query.get("continue", 0))
        names = sorted(self.pods)
        end = start + min(self._page, int(call.query["limit"]))
        meta = {"resourceVersion": str(self.version)}
        if names[end:]:
            meta["continue"] = str(end)
        items = [self.pods[name] for name in names[start:end]]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}
        content = self.garble_page(_encode(body) + b"\n")
        if len(content) > call.most_bytes:
            raise TooLargeError("a page is too large")
        self.largest_page = max(self.largest_page, len(content))
        return content

    @contextlib.asynccontextmanager
    async def stream(self, call, seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._chunks(
            int(call.query["resourceVersion"]), float(call.query["timeoutSeconds"]), seconds
        )

    async def _chunks(self, version: int, asked: float, most: float) -> AsyncIterator[bytes]:
        end = self.clock.now + asked
        while True:
            if self.silent_watches:
                await self.clock.wait(end - asked + most - self.clock.now)
                raise LostError("no end of the watch")
            for at, line in list(self._history):
                if at > version:
                    version = at
                    yield self.garble_line(line)
            if self.clock.now >= end:
                break
            await self.clock.wait(min(5.0, end - self.clock.now))
        if self.bookmarks:
            # What was told again has a place in the history, and no version of its own.
            reached = str(min(version, self.version))
            yield _line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": reached}})

    def _tell(self, kind: str, pod: dict[str, object]) -> None:
        line = _line(kind, {"kind": "Pod", "apiVersion": "v1", **pod})
        self._history.append((self.version, line))


def _line(kind: str, body: dict[str, object]) -> bytes:
    return _encode({"type": kind, "object": body}) + b"\n"


def _encode(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
