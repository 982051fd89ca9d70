"""Requests over HTTP/1.1 to one server: kept connections with one request under way on each.

An answer is one future and a request one write, because every bound pod waits for both. A
connection is used again once its answer was read to the end; any other end closes it. Answers
without an end, which watches are, are handed over as they come, and paused when nobody takes them.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httptools

# Servers and what stands before them close idle connections; a request must not meet that.
_IDLE_SECONDS: Final = 15.0
_MOST_IDLE: Final = 32
# What of a stream may wait to be taken before reading is paused.
_MOST_WAITING: Final = 1 << 20
MOST_BYTES: Final = 64 << 20
"""How large an answer may be where nobody says otherwise."""


class AnswerTooLargeError(Exception):
    """The answer is over what its caller wants."""


class NoConnectionError(OSError):
    """No connection could be made, so that nothing was sent."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnection(asyncio.Protocol):
    """One connection; the callbacks of the parser have the names that it wants."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._waiting = self._size = 0
        self._most = MOST_BYTES
        self._streams = self._flows = self._paused = self._complete = False
        self._stirred: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self.idle_since = 0.0
        self.usable = False
        """Whether another request may be sent."""

    async def exchange(
        self, request: bytes, seconds: float, most_bytes: int = MOST_BYTES
    ) -> HttpAnswer:
        """The answer to a request; whatever else happens ends the connection."""
        self.usable = self._complete = False
        self._most, self._size = most_bytes, 0
        answer: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self._answer = answer
        self._transport.write(request)
        timer = self._loop.call_later(seconds, self._fail, TimeoutError())
        try:
            return await answer
        finally:
            timer.cancel()
            self._answer = None
            if not self.usable and not self._flows:
                self.abort()

    async def open_stream(self, request: bytes, seconds: float) -> HttpAnswer:
        """The head of an answer whose body `chunks` hands over; a refusal is read whole."""
        self._streams = True
        try:
            return await self.exchange(request, seconds)
        finally:
            self.usable = False

    async def chunks(self, seconds: float) -> AsyncIterator[bytes]:
        """The body of a stream, as it comes; an end that is none, or comes late, is an error."""
        timer = self._loop.call_later(seconds, self._fail, TimeoutError())
        try:
            while True:
                if self._pieces:
                    pieces, self._pieces, self._waiting = self._pieces, [], 0
                    if self._paused:
                        self._paused = False
                        self._transport.resume_reading()
                    yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
                elif self._complete:
                    return
                elif self._failure is not None:
                    raise self._failure
                else:
                    self._stirred = self._loop.create_future()
                    await self._stirred
        finally:
            timer.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        self.usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are no subclasses of asyncio's.
        self._transport, self.usable = cast(asyncio.Transport, transport), True

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        sized = self._headers.keys() & {"content-length", "transfer-encoding"}
        if exc is None and self._headers and not sized:
            # Without a length, the end of the connection is the end of the answer.
            self._complete = True
            self._finish()
        self._fail(ConnectionError(str(exc or "the server closed the connection")))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no answer in HTTP: {error}"))
            self.abort()

    def on_message_begin(self) -> None:
        self._headers, self._pieces = {}, []
        if self._answer is None or self._answer.done():
            # Nobody has asked for it.
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._measure(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._streams and 200 <= self._parser.get_status_code() < 300:
            self._flows = self._answer is not None and not self._answer.done()
            self._finish()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        if self._streams:
            self._waiting += len(body)
            if self._waiting > _MOST_WAITING and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            self._stir()
        else:
            self._measure(len(body))

    def _measure(self, more: int) -> None:
        """Give an answer up that is larger than its caller wants."""
        self._size += more
        if self._size > self._most:
            self._pieces = []
            self._fail(AnswerTooLargeError(f"over {self._most} bytes"))
            self.abort()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            # An interim answer: the real one follows.
            return
        self.usable = self._parser.should_keep_alive() and not self._transport.is_closing()
        self._complete = True
        self._finish()
        self._stir()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            status = self._parser.get_status_code()
            self._answer.set_result(HttpAnswer(status, self._headers, body))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self._stir()

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)


class ConnectionPool:
    """Kept connections to one server."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        *,
        server_name: str | None = None,
        connect_seconds: float = 5.0,
        open_socket: Callable[[tuple[Any, ...]], socket.socket],
    ) -> None:
        parts = urlsplit(server)
        self.prefix = parts.path.rstrip("/")
        """What every path begins with."""
        self.host = parts.netloc.rpartition("@")[2]
        """The server as requests name it."""
        self._name = parts.hostname or ""
        self._secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._tls = tls
        self._server_name = server_name
        self._seconds = connect_seconds
        self._open_socket = open_socket
        self._idle: list[HttpConnection] = []
        self._busy: set[HttpConnection] = set()

    async def acquire(self, seconds: float) -> HttpConnection:
        """A connection of one's own until it is released."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _IDLE_SECONDS
        while self._idle:
            kept = self._idle.pop()
            if kept.usable and kept.idle_since >= oldest:
                self._busy.add(kept)
                return kept
            kept.abort()
        try:
            async with asyncio.timeout(min(seconds, self._seconds)):
                made = await self._connect(loop)
        except TimeoutError as error:
            raise NoConnectionError(f"no connection to {self.host} in time") from error
        except OSError as error:
            raise NoConnectionError(str(error) or type(error).__name__) from error
        self._busy.add(made)
        return made

    def release(self, connection: HttpConnection) -> None:
        """Keep the connection for others, where it can be used again."""
        self._busy.discard(connection)
        if connection.usable and len(self._idle) < _MOST_IDLE:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        for each in (*self._idle, *self._busy):
            each.abort()
        self._idle.clear()

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> HttpConnection:
        failure: OSError = OSError(f"no address of {self._name}")
        for address in await loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM):
            made = self._open_socket(address)
            try:
                made.setblocking(False)
                await loop.sock_connect(made, address[4])
                secure = (self._tls or ssl.create_default_context()) if self._secure else None
                _, protocol = await loop.create_connection(
                    lambda: HttpConnection(loop),
                    sock=made,
                    ssl=secure,
                    server_hostname=(self._server_name or self._name) if secure else None,
                )
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                return protocol
        raise failure


def write_request(
    method: str, target: str, headers: Mapping[str, str], content: bytes | None
) -> bytes:
    """One request as bytes; what could end a line early is refused."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    if content is not None:
        lines.append(f"Content-Length: {len(content)}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError("a request's head holds a line break: expected none")
    return text.encode("latin-1") + b"\r\n\r\n" + (content or b"")
