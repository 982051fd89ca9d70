"""One connection: its limits, its client certificate, protocol upgrades, and coalesced writes.

The parser itself bounds nothing, so that heads, trailers and pipelined requests are bounded here.
Uvicorn writes headers and body separately, and each write wakes the client; what is written
within one turn of the event loop is sent by one call.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from slicewise.httpd.limiter import TrackedConnection
from slicewise.httpd.message import Peer, Upgrade
from slicewise.model import SlicewiseError

SWITCHED = "switched"
"""Under which key a server keeps the connections that HTTP has let go of."""

_SMALL: Final = 1 << 14
# How long what a refused client still sends is thrown away, so that it can read the answer.
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 4 << 20
# How much longer than an idle connection is kept its last answer may take to be read.
_FLUSH_SECONDS: Final = 5.0


class HeadTooLargeError(SlicewiseError):
    """A request's head or trailer is over a limit; raised through the parser."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP/1.1 within limits, whose requests know the client certificate of their connection."""

    def __init__(self, tracked: TrackedConnection, *args: Any, **facts: Any) -> None:
        """Serve one connection that the limiter has let in."""
        super().__init__(*args, **facts)
        self._tracked = tracked
        self._limits = tracked.limiter.limits
        self._moved = False
        self._stuck = 0
        """Bytes since the parser last found the end of a head, or some body."""
        self._line_bytes = self._head_bytes = self._head_count = 0
        self._reading = False
        """Whether a request has begun and has not come to its end."""
        self._lingering = False
        self._status = 400

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Read the certificate, which the handshake has verified by now."""
        self._gathering = CoalescingTransport(transport, self.loop, self._linger)
        super().connection_made(self._gathering)  # type: ignore[arg-type]
        self._tracked.cut = transport.abort
        self._tracked.wait("head", self._limits.head_seconds)
        peer = read_peer(transport.get_extra_info("ssl_object"))
        self._switched: WeakSet[asyncio.Transport] = self.app_state.setdefault(SWITCHED, WeakSet())
        hooks = {"switch": self.switch, "abort": transport.abort, "connection": self._tracked}
        self.app_state = {**self.app_state, **hooks, "peer": peer}

    def connection_lost(self, exc: Exception | None) -> None:
        self._tracked.limiter.forget(self._tracked)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and refuse a head, trailer or chunk header without end."""
        if self._lingering:
            self._stuck += len(data)
            if self._stuck > _LINGER_BYTES:
                self.transport.abort()
            return
        if self.transport.is_closing():
            return
        if self._tracked.waits_for == "idle" and not self._tracked.busy:
            self._tracked.wait("head", self._limits.head_seconds)
        self._moved = False
        super().data_received(data)
        if self._reading and self._tracked.waits_for == "admission":
            # Nothing more is taken of a body before it is known that it will be read.
            self.flow.pause_reading()
        self._stuck = 0 if self._moved else self._stuck + len(data)
        if self._stuck > self._limits.head_bytes + self._limits.line_bytes:
            self._status = 431
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Say what is wrong with the request, unless an answer is under way."""
        if self.transport.is_closing() or self._lingering:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        head = b"content-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[self._status] + head)
        self._reading = True
        self.transport.close()

    def on_message_begin(self) -> None:
        self._line_bytes = self._head_bytes = self._head_count = 0
        self._reading = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._line_bytes += len(url)
        if self._line_bytes > self._limits.line_bytes:
            self._status = 414
            raise HeadTooLargeError(f"request target over {self._limits.line_bytes} bytes")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        self._head_count += 1
        limits = self._limits
        if self._head_bytes > limits.head_bytes or self._head_count > limits.head_count:
            self._status = 431
            raise HeadTooLargeError(f"headers over {limits.head_bytes} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise HeadTooLargeError(f"over {self._limits.pipelined} pipelined requests")
        self._moved = True
        # What follows may be trailers, which have as much room of their own.
        self._head_bytes = self._head_count = 0
        if not self._tracked.busy:
            self._tracked.wait("admission")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        self._reading = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._tracked.served += 1
        if not self._lingering:
            if self.pipeline:
                self._tracked.wait("admission")
            else:
                self._tracked.wait("idle", self.timeout_keep_alive + _FLUSH_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._tracked.watch_unsent(self.transport.get_write_buffer_size)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._tracked.watch_unsent(None)
        super().resume_writing()

    def switch(self, answer: Upgrade) -> None:
        transport = self._gathering.release()
        self._tracked.limiter.forget(self._tracked)
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        # uvicorn sends nothing to a client that has disconnected.
        self.cycle.disconnected = self.cycle.response_complete = True
        if not transport.is_closing():
            lines = (
                "HTTP/1.1 101 Switching Protocols",
                "connection: Upgrade",
                f"upgrade: {answer.name}",
                "\r\n",
            )
            transport.write("\r\n".join(lines).encode("latin-1"))
            protocol = answer.make()
            transport.set_protocol(protocol)
            self._switched.add(transport)
            protocol.connection_made(transport)
        self.app_state = {}

    def _linger(self, transport: asyncio.Transport) -> bool:
        """Whether to go on reading: closed with bytes unread, the client may lose the answer."""
        if self._lingering or not self._reading:
            return False
        self._lingering = True
        self._stuck = 0
        seconds = min(_LINGER_SECONDS, self._limits.head_seconds)
        self._tracked.wait("lingering", seconds)
        if transport.can_write_eof():
            transport.write_eof()
        self.flow.resume_reading()
        return True


class CoalescingTransport:
    """A transport that coalesces the writes of one turn of the event loop."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        linger: Callable[[asyncio.Transport], bool],
    ) -> None:
        """`linger` says whether the reading half stays open when this is closed."""
        self._transport = transport
        self._loop = loop
        self._linger = linger
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send this soon, behind what was written before it."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        # Large writes need the flow control of the real transport.
        if len(data) > _SMALL:
            self._flush()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        if self._transport.is_closing() or not self._linger(self._transport):
            self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()

    def release(self) -> asyncio.Transport:
        """The transport itself, once everything written has been handed to it."""
        self._flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def read_peer(tls: ssl.SSLObject | None) -> Peer | None:
    certificate = tls.getpeercert(binary_form=True) if tls is not None else None
    if tls is None or certificate is None:
        return None
    names: dict[str, list[str]] = {}
    subject: Any = (tls.getpeercert() or {}).get("subject", ())
    for row in subject:
        for key, value in row:
            names.setdefault(key, []).append(value)
    common = names.get("commonName", [""])[0]
    return Peer(common, tuple(names.get("organizationName", ())), certificate)
