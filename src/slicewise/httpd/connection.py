"""One connection: its client certificate, protocol upgrades, and coalesced writes.

Uvicorn writes headers and body separately, and each write wakes the client; what is written
within one turn of the event loop is sent by one call.
"""

import asyncio
import ssl
from typing import Any, Final
from weakref import WeakSet

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slicewise.httpd.message import Peer, Upgrade

SWITCHED = "switched"
"""Under which key a server keeps the connections that HTTP has let go of."""

_SMALL: Final = 1 << 14


class PeerProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose requests know the client certificate of their connection."""

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Read the certificate, which the handshake has verified by now."""
        self._gathering = CoalescingTransport(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type]
        peer = read_peer(transport.get_extra_info("ssl_object"))
        self._switched: WeakSet[asyncio.Transport] = self.app_state.setdefault(SWITCHED, WeakSet())
        hooks = {"switch": self.switch, "abort": transport.abort}
        self.app_state = {**self.app_state, **hooks, "peer": peer}

    def switch(self, answer: Upgrade) -> None:
        transport = self._gathering.release()
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


class CoalescingTransport:
    """A transport that coalesces the writes of one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send this soon, behind what was written before it."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        # Large writes need the flow control of the real transport.
        if len(data) > _SMALL:
            self._flush()

    def close(self) -> None:
        self._flush()
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
