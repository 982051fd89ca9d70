"""One HTTP connection: who is at its other end, and how it becomes another protocol's."""

import asyncio
import ssl
from typing import Any
from weakref import WeakSet

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slicewise.httpd.message import Peer, Upgrade

SWITCHED = "switched"
"""Under which key a server keeps the connections that HTTP has let go of."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose requests know the client certificate of their connection."""

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Read the certificate, which the handshake has verified by now."""
        super().connection_made(transport)
        peer = read_peer(transport.get_extra_info("ssl_object"))
        self._switched: WeakSet[asyncio.Transport] = self.app_state.setdefault(SWITCHED, WeakSet())
        deeds = {"switch": self.switch, "abort": transport.abort}
        self.app_state = {**self.app_state, **deeds, "peer": peer}

    def switch(self, answer: Upgrade) -> None:
        """Let another protocol have the connection, and keep nothing of ours alive."""
        transport = self.transport
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        # uvicorn takes a client that has left for an excuse to send nothing.
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
