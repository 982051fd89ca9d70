"""One connection: who is at its other end, and answers that leave in one piece.

Uvicorn writes headers and body apart, and each write wakes the client; an answer that is whole
within one turn of the loop is sent by one call.
"""

import asyncio
import ssl
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slicewise.httpd.message import Peer

_SMALL: Final = 1 << 14


class PeerProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose requests know the client certificate of their connection."""

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Read the certificate, which the handshake has verified by now."""
        super().connection_made(Gathering(transport, self.loop))  # type: ignore[arg-type]
        peer = read_peer(transport.get_extra_info("ssl_object"))
        if peer is not None:
            self.app_state = {**self.app_state, "peer": peer}


class Gathering:
    """A transport that sends at the end of the loop's turn what was written during it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send this soon, behind what was written before it."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        # Whoever writes much must hear from the real transport when it is too much.
        if len(data) > _SMALL:
            self._flush()

    def close(self) -> None:
        """Close once everything is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever waits."""
        self._waiting.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def read_peer(tls: ssl.SSLObject | None) -> Peer | None:
    """Whom the client certificate names, if there is one."""
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
