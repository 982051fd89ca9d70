"""Hot reload of TLS certificates: read again when their files change.

Every handshake uses the current context, so replaced files count from the next connection.
"""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from slicewise.httpd.settings import Tls

_log = structlog.get_logger(__name__)

# How often the files are checked at most, in seconds.
_PAUSE: Final = 1.0


class CertificateReloader:
    """The current TLS context of a set of files."""

    def __init__(self, tls: Tls, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files; raises when they cannot be used."""
        self._tls = tls
        self._clock = clock
        self._seen = self._stamp()
        self._looked = clock()
        self.current = build_context(tls)
        self.listening = build_context(tls)
        self.listening.sni_callback = self._choose

    def refresh(self) -> bool:
        """Reload the files if they changed; unusable ones are logged, and the old ones stay."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.current = build_context(self._tls)
        except (OSError, ssl.SSLError) as error:
            _log.error(
                "certificates not reloaded", file=str(self._tls.certificate), error=str(error)
            )
            return False
        _log.info("certificates reloaded", file=str(self._tls.certificate))
        return True

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:  # noqa: ARG002
        now = self._clock()
        if now - self._looked >= _PAUSE:
            self._looked = now
            self.refresh()
        connection.context = self.current

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        paths = (self._tls.certificate, self._tls.key, self._tls.client_ca)
        return tuple(None if path is None else _stamp(path) for path in paths)


def build_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the check against the current authorities.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_cert_chain(tls.certificate, tls.key)
    if tls.client_ca is not None:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if tls.require_client else ssl.CERT_OPTIONAL
    return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
