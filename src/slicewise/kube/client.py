"""The HTTP client of one API server, as one user: a connection pool, raw bytes, counted calls.

Reads are retried after retryable failures; writes are sent once, because only their caller knows
what a lost answer means. A throttled write (429) is retried, since nothing was carried out.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import msgspec

from slicewise.kube.credentials import Access
from slicewise.kube.errors import LostError, RefusedError, UnreachedError
from slicewise.kube.objects import StatusBody
from slicewise.model.backoff import Backoff

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_METHODS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_THROTTLED: Final = 429
_DRAIN_SECONDS: Final = 1.0
# TCP keepalive, so that a peer that is gone is noticed within half a minute.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its verb and resource for metrics, its path and its query."""

    verb: str
    resource: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)


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
        self.calls = CallCounter()
        self.sleep = sleep
        self.chance = chance or Random()
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=self.access.tls or False, socket_factory=self._open_socket
            ),
            # Compressing costs the server more time than sending plainly inside a cluster.
            headers={"User-Agent": self._agent, "Accept": JSON, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(
                total=self.timing.request_seconds, sock_connect=self.timing.connect_seconds
            ),
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._drain()

    async def read(self, call: Call) -> bytes:
        """The answer to a get or list, with retries."""
        return await self._retry(lambda: self._once("GET", call), reads=True)

    async def read_once(self, call: Call, *, seconds: float | None = None) -> bytes:
        """The answer to a get or list, without retries."""
        return await self._once("GET", call, seconds=seconds)

    async def send(
        self, call: Call, body: object, *, content_type: str = JSON, seconds: float | None = None
    ) -> bytes:
        """The answer to a write, retried only when it was throttled."""
        content = msgspec.json.encode(body)
        method = _METHODS[call.verb]
        return await self._retry(
            lambda: self._once(
                method, call, content=content, content_type=content_type, seconds=seconds
            ),
            reads=False,
        )

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of a watch that the server ends after about so many seconds."""
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self.timing.connect_seconds,
            sock_read=seconds + self.timing.request_seconds,
        )
        with self._counting(call):
            async with asyncio.timeout(self.timing.request_seconds):
                response = await self._request("GET", call, timeout=timeout)
            try:
                await _check(response)
                self.calls.count(call, str(response.status))
                yield response.content.iter_any()
            finally:
                _abort(response)

    def _open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket with TCP keepalive, which notices when its peer is gone."""
        family, kind, protocol, *_ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._sockets.add(made)
        return made

    async def _drain(self) -> None:
        """Wait a moment for connections that are still closing after cancelled requests."""
        end = monotonic() + _DRAIN_SECONDS
        while any(each.fileno() >= 0 for each in self._sockets) and monotonic() < end:
            await asyncio.sleep(0.005)

    async def _retry(self, attempt: Callable[[], Awaitable[bytes]], *, reads: bool) -> bytes:
        failures = 0
        while True:
            retry_after = None
            try:
                return await attempt()
            except RefusedError as error:
                failures += 1
                again = error.code == _THROTTLED or (reads and error.retryable)
                if not again or failures >= self.timing.attempts:
                    raise
                retry_after = error.retry_after
            except (LostError, UnreachedError):
                failures += 1
                if not reads or failures >= self.timing.attempts:
                    raise
            await self.sleep(self.timing.backoff.delay(failures, self.chance.random(), retry_after))

    async def _once(
        self,
        method: str,
        call: Call,
        *,
        content: bytes | None = None,
        content_type: str | None = None,
        seconds: float | None = None,
    ) -> bytes:
        facts: dict[str, Any] = {} if content is None else {"data": content}
        if content_type is not None:
            facts["headers"] = {"Content-Type": content_type}
        if seconds is not None:
            facts["timeout"] = aiohttp.ClientTimeout(
                total=seconds, sock_connect=min(seconds, self.timing.connect_seconds)
            )
        with self._counting(call):
            async with await self._request(method, call, **facts) as response:
                await _check(response)
                body = await response.read()
                self.calls.count(call, str(response.status))
                return body

    async def _request(self, method: str, call: Call, **facts: Any) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        headers = dict(facts.pop("headers", {}))
        if self.access.token is not None:
            headers["Authorization"] = f"Bearer {await self.access.token.read()}"
        if self.access.server_name is not None:
            facts["server_hostname"] = self.access.server_name
        return await self._session.request(
            method,
            self.access.server + call.path,
            params=call.query,
            headers=headers,
            allow_redirects=False,
            **facts,
        )

    @contextlib.contextmanager
    def _counting(self, call: Call) -> Any:
        """Turn every failure of a request into a KubeError, and count it."""
        try:
            yield
        except RefusedError as error:
            self.calls.count(call, str(error.code))
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self.calls.count(call, "unreached")
            raise UnreachedError(f"cannot reach {self.access.server}: {error}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.calls.count(call, "lost")
            what = str(error) or type(error).__name__
            raise LostError(f"no answer to {call.verb} {call.path}: {what}") from error


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    body = await response.read()
    try:
        status = msgspec.json.decode(body, type=StatusBody)
    except msgspec.DecodeError:
        status = StatusBody()
    if not status.message:
        # Proxies, and services behind them, answer with texts of their own.
        status = StatusBody(body[:2000].decode(errors="replace"), status.reason)
    raise RefusedError(
        response.status,
        status.reason,
        status.message,
        _read_seconds(response.headers.get("Retry-After")),
    )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Abort the connection of a watch instead of reading to its end."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        # A graceful close would wait for a server that may be gone.
        connection.transport.abort()
    response.close()


def _read_seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
