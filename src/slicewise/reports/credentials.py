"""Who an agent is to the server, and by which authority it knows the server; read per connection.

Files are read again for every connection, so that rotated tokens and authorities count at once.
"""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slicewise.reports.messages import ReportError


class Credentials(Protocol):
    """What a connection is made with."""

    async def tls(self) -> ssl.SSLContext | None:
        """Whom to trust and which certificate to show; None for plain TCP, in tests."""

    async def token(self) -> str | None:
        """The bearer token to send, if there is one."""


@dataclass(frozen=True, slots=True)
class FileCredentials:
    """Credentials that stand in files."""

    authority: Path
    """PEM authorities the server's certificate must be from."""
    token_file: Path | None = None
    """A service account's token."""
    certificate: Path | None = None
    """PEM client certificate."""
    key: Path | None = None
    """PEM key of that certificate."""

    async def tls(self) -> ssl.SSLContext:
        """A context made of the files as they are now."""
        return await asyncio.to_thread(self._build)

    async def token(self) -> str | None:
        if self.token_file is None:
            return None
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise ReportError(f"cannot read token {self.token_file}: {error.strerror}") from error

    def _build(self) -> ssl.SSLContext:
        try:
            context = trust(self.authority.read_text())
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ReportError(f"certificates cannot be used: {error}") from error
        return context


def trust(authorities: str) -> ssl.SSLContext:
    """A client's context that trusts these PEM authorities and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=authorities)
    except ssl.SSLError as error:
        raise ReportError(f"authorities cannot be read: {error}") from error
    return context
