"""Where a server listens and its limits; checked once at start."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path
    """PEM chain the server shows."""
    key: Path
    """PEM key of that certificate."""
    client_ca: Path | None = None
    """PEM authorities for client certificates; none asks for no client certificate."""
    require_client: bool = False
    """Whether a connection without a client certificate is refused."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    """Address to bind."""
    port: int = 0
    """Port to bind; 0 takes a free one."""
    tls: Tls | None = None
    """Serve HTTPS with these files; none serves plain HTTP."""
    max_body_bytes: int = 128 * 1024 * 1024
    """Largest request body; more is answered 413."""
    request_seconds: float | None = 60.0
    """Longest time for one whole answer, streams excepted; more is answered 504."""
    idle_seconds: int = 120
    """How long an idle connection is kept."""
    stop_seconds: float = 2.0
    """How long a stop waits for answers under way."""

    def __post_init__(self) -> None:
        """Refuse limits that no request could meet."""
        if self.max_body_bytes <= 0:
            raise ValueError(f"max_body_bytes={self.max_body_bytes}: expected more than 0")
        if self.request_seconds is not None and self.request_seconds <= 0:
            raise ValueError(f"request_seconds={self.request_seconds}: expected more than 0")
