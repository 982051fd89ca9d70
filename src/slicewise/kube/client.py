"""The HTTP client of one API server, as one user: kept connections, raw bytes, counted calls.

Reads are retried after retryable failures; writes are sent once, because only their caller knows
what a lost answer means. A throttled write (429) is retried, since nothing was carried out.
With a fence, no write is sent unless it is open, and nothing is sent after it has closed.
"""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode
from weakref import WeakSet

import msgspec

from slicewise.kube.connections import (
    MOST_BYTES,
    AnswerTooLargeError,
    ConnectionPool,
    HttpAnswer,
    NoConnectionError,
    write_request,
)
from slicewise.kube.credentials import Access
from slicewise.kube.errors import (
    KubeError,
    LostError,
    RefusedError,
    TooLargeError,
    UnreachedError,
)
from slicewise.kube.leading.fence import Fence, open_socket, reset
from slicewise.kube.objects import StatusBody
from slicewise.model.backoff import Backoff

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_METHODS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_THROTTLED: Final = 429
_DRAIN_SECONDS: Final = 1.0
# What a path may hold as it is; "%" begins what is quoted already.
_SAFE: Final = "/:%@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its verb and resource for metrics, its path and its query."""

    verb: str
    resource: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    most_bytes: int = MOST_BYTES
    """How large its answer may be."""


class CallCounter:
    """How many requests were made, by verb, resource and outcome: a code, lost or unreached."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def count(self, call: Call, code: str) -> None:
        self.counts[call.verb, call.resource, code] += 1


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """How long requests may take, and how often they are retried."""

    request_seconds: float = 30.0
    """The longest time for one answer, and for the headers of a watch."""
    connect_seconds: float = 5.0
    """The longest time to make a connection."""
    attempts: int = 6
    """How often a read is tried, and a throttled write."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.1, 5.0))
    """How long to wait between two tries."""


class Client:
    """A connection pool with credentials; open it with `async with`."""

    def __init__(
        self,
        access: Access,
        *,
        timing: RequestTimeouts | None = None,
        agent: str = "slicewise",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Random | None = None,
    ) -> None:
        self.access = access
        self.timing = timing or RequestTimeouts()
        self.fence: Fence | None = None
        """What allows writes; set before connections are made, None allows all."""
        self.calls = CallCounter()
        self.sleep = sleep
        self.chance = chance or Random()
        # Compressing costs the server more time than sending plainly inside a cluster.
        self._headers = {"User-Agent": agent, "Accept": JSON, "Accept-Encoding": "identity"}
        self._pool: ConnectionPool | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._changing_sockets = threading.Lock()

    async def __aenter__(self) -> Self:
        self._pool = ConnectionPool(
            self.access.server,
            self.access.tls,
            server_name=self.access.server_name,
            connect_seconds=self.timing.connect_seconds,
            open_socket=self._open_socket,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
            await self._drain()

    async def read(self, call: Call) -> bytes:
        """The answer to a get or list, with retries."""
        return await self._retry(lambda: self._once("GET", call), reads=True)

    async def read_once(self, call: Call, *, seconds: float | None = None) -> bytes:
        """The answer to a get or list, without retries."""
        return await self._once("GET", call, seconds=seconds)

    async def send(
        self,
        call: Call,
        body: object,
        *,
        content_type: str = JSON,
        seconds: float | None = None,
        retry: bool = True,
    ) -> bytes:
        """The answer to a write, retried only when it was throttled, within the seconds."""
        content = msgspec.json.encode(body)
        method = _METHODS[call.verb]
        end = None if seconds is None else monotonic() + seconds

        def attempt() -> Awaitable[bytes]:
            if self.fence is not None:
                self.fence.check()
            left = None if end is None else end - monotonic()
            return self._once(
                method, call, content=content, content_type=content_type, seconds=left
            )

        return await (self._retry(attempt, reads=False, end=end) if retry else attempt())

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of a watch, which is lost when it has not ended after so many seconds."""
        pool = self._open_pool
        with self._counting(call):
            request = await self._write(pool, "GET", call)
            began, wait = monotonic(), self.timing.request_seconds
            connection = await pool.acquire(wait)
            try:
                answer = await connection.open_stream(request, wait - (monotonic() - began))
                if answer.status >= 300:
                    raise _read_refusal(answer.status, answer.headers, answer.body)
                self.calls.count(call, str(answer.status))
                yield connection.chunks(seconds - (monotonic() - began))
            finally:
                # A graceful close would wait for a server that may be gone.
                connection.abort()
                pool.release(connection)

    def abort(self) -> int:
        """Reset every connection, so that nothing more is sent on it; from any thread."""
        with self._changing_sockets:
            found = [each for each in self._sockets if each.fileno() >= 0]
        return reset(found)

    def _open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        made = open_socket(address, None if self.fence is None else self.fence.unsent_seconds)
        with self._changing_sockets:
            self._sockets.add(made)
        return made

    async def _drain(self) -> None:
        """Wait a moment for connections that are still closing after cancelled requests."""
        end = monotonic() + _DRAIN_SECONDS
        while any(each.fileno() >= 0 for each in self._sockets) and monotonic() < end:
            await asyncio.sleep(0.005)

    async def _retry(
        self, attempt: Callable[[], Awaitable[bytes]], *, reads: bool, end: float | None = None
    ) -> bytes:
        failures, failure = 0, KubeError("not tried")
        while True:
            retry_after = None
            try:
                return await attempt()
            except RefusedError as error:
                failures, failure = failures + 1, error
                again = error.code == _THROTTLED or (reads and error.retryable)
                if not again or failures >= self.timing.attempts:
                    raise
                retry_after = error.retry_after
            except (LostError, UnreachedError) as error:
                failures, failure = failures + 1, error
                if not reads or failures >= self.timing.attempts:
                    raise
            delay = self.timing.backoff.delay(failures, self.chance.random(), retry_after)
            if end is not None and monotonic() + delay >= end:
                raise failure
            await self.sleep(delay)

    async def _once(
        self,
        method: str,
        call: Call,
        *,
        content: bytes | None = None,
        content_type: str | None = None,
        seconds: float | None = None,
    ) -> bytes:
        try:
            answer = await self._exchange(method, call, content, content_type, seconds)
        except (OSError, AnswerTooLargeError) as error:
            raise self._count_failure(call, error) from error
        self.calls.count(call, str(answer.status))
        if answer.status >= 300:
            raise _read_refusal(answer.status, answer.headers, answer.body)
        return answer.body

    async def _exchange(
        self,
        method: str,
        call: Call,
        content: bytes | None,
        content_type: str | None,
        seconds: float | None,
    ) -> HttpAnswer:
        pool = self._open_pool
        request = await self._write(pool, method, call, content, content_type)
        began, limit = monotonic(), self.timing.request_seconds if seconds is None else seconds
        connection = await pool.acquire(limit)
        try:
            if content is not None and self.fence is not None:
                # It may have closed while the connection was made.
                self.fence.check()
            left = limit - (monotonic() - began)
            return await connection.exchange(request, left, call.most_bytes)
        finally:
            pool.release(connection)

    @property
    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        return self._pool

    async def _write(
        self,
        pool: ConnectionPool,
        method: str,
        call: Call,
        content: bytes | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """A request as bytes, with the credentials of this moment."""
        headers = {"Host": pool.host, **self._headers}
        if self.access.token is not None:
            headers["Authorization"] = f"Bearer {await self.access.token.read()}"
        if content_type is not None:
            headers["Content-Type"] = content_type
        return write_request(method, _target(pool.prefix, call), headers, content)

    @contextlib.contextmanager
    def _counting(self, call: Call) -> Any:
        """Turn every failure of a request into a KubeError, and count it."""
        try:
            yield
        except RefusedError as error:
            self.calls.count(call, str(error.code))
            raise
        except (OSError, AnswerTooLargeError) as error:
            raise self._count_failure(call, error) from error

    def _count_failure(self, call: Call, error: Exception) -> KubeError:
        """What a request without an answer is told as; a timeout is one as well."""
        if isinstance(error, NoConnectionError):
            self.calls.count(call, "unreached")
            return UnreachedError(f"cannot reach {self.access.server}: {error}")
        if isinstance(error, AnswerTooLargeError):
            self.calls.count(call, "too large")
            return TooLargeError(f"answer to {call.verb} {call.path} is {error}")
        self.calls.count(call, "lost")
        what = str(error) or type(error).__name__
        return LostError(f"no answer to {call.verb} {call.path}: {what}")


def _target(prefix: str, call: Call) -> str:
    path = quote(prefix + call.path, safe=_SAFE)
    return f"{path}?{urlencode(call.query, quote_via=quote)}" if call.query else path


def _read_refusal(status: int, headers: Mapping[str, str], body: bytes) -> RefusedError:
    try:
        said = msgspec.json.decode(body, type=StatusBody)
    except (ValueError, RecursionError):
        said = StatusBody()
    if not said.message:
        # Proxies, and services behind them, answer with texts of their own.
        said = StatusBody(body[:2000].decode(errors="replace"), said.reason)
    return RefusedError(status, said.reason, said.message, _read_seconds(headers))


def _read_seconds(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after")
    return float(text) if text is not None and text.isdecimal() else None
