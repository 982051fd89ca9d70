"""Who is at the other end of a TLS connection, read once when it is made."""

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slicewise.httpd.message import Peer


class PeerProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose requests know the client certificate of their connection."""

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Read the certificate, which the handshake has verified by now."""
        super().connection_made(transport)
        peer = read_peer(transport.get_extra_info("ssl_object"))
        if peer is not None:
            self.app_state = {**self.app_state, "peer": peer}


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
