"""Where a server listens and its limits; checked once at start."""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from ipaddress import ip_address
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
    client_names: frozenset[str] = frozenset()
    """Common names of the clients that are served; empty for every verified one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What clients may cost that have not shown who they are."""

    connections: int = 1024
    """Connections in all; one more takes the place of one that waits, or is closed."""
    connections_per_peer: int = 512
    """Connections of one address; an IPv6 peer is its /64."""
    line_bytes: int = 8 << 10
    """Longest request target; more is answered 414."""
    head_bytes: int = 16 << 10
    """All headers of a request, or its trailers; more is answered 431."""
    head_count: int = 64
    """How many headers a request may have; more is answered 431."""
    handshake_seconds: float = 10.0
    """Longest time for a TLS handshake."""
    head_seconds: float = 10.0
    """Longest time for the head of each request."""
    body_seconds: float = 10.0
    """How long a body may take in any case; beyond that it has to keep to the least rate."""
    bytes_per_second: int = 16 << 10
    """The least rate at which bodies must arrive and answers must be read."""
    bodies_bytes: int = 256 << 20
    """All request bodies in memory; beyond that the body that takes longest is given up."""
    pipelined: int = 16
    """Requests of one connection that wait behind an unanswered one."""

    def __post_init__(self) -> None:
        """Refuse limits that no client could meet."""
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise ValueError(f"{each.name}={getattr(self, each.name)}: expected more than 0")


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
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """What clients may cost."""
    any_host: bool = False
    """Whether requests on loopback may name another host, for services that ask for a token."""

    def __post_init__(self) -> None:
        """Refuse limits that no request could meet."""
        if self.max_body_bytes <= 0:
            raise ValueError(f"max_body_bytes={self.max_body_bytes}: expected more than 0")
        if self.request_seconds is not None and self.request_seconds <= 0:
            raise ValueError(f"request_seconds={self.request_seconds}: expected more than 0")

    @property
    def only_local(self) -> bool:
        """Whether this is plain HTTP on loopback, where a browser's page may be the client."""
        return self.tls is None and is_loopback(self.host) and not self.any_host


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether an address, or the name of one, is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
