"""What a handler receives and what it may answer: plain values, no ASGI.

A body is bytes on both sides: the service decodes it with the struct it wants.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from slicewise.model import SlicewiseError

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


Body: TypeAlias = bytes | bytearray
"""What a client sent; a large body stays where it was gathered."""


class CutError(SlicewiseError):
    """Raised by a stream that wants its connection closed in the middle."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a verified client certificate names."""

    common_name: str
    organizations: tuple[str, ...]
    certificate: bytes
    """The certificate itself, in DER."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, read whole; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Body
    gone: Callable[[], Awaitable[None]]
    """Returns once the client has hung up."""
    peer: Peer | None = None
    """Who is at the other end; none without TLS or without a client certificate."""
    fields: Sequence[tuple[str, str]] = ()
    """Every header in order, for those that may be repeated."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the path says where its route has a parameter."""

    def with_body(self, body: Body) -> "HttpRequest":
        """The request once its body was read; `dataclasses.replace` takes several times as long."""
        return HttpRequest(
            self.method, self.path, self.query, self.headers, body, self.gone, self.peer,
            self.fields, self.parameters,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One whole answer; `cut_after` closes the connection after that many bytes of the body."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """One whole answer that is put together while it is sent, its length known beforehand."""

    length: int
    pieces: Iterable[bytes]
    content_type: str = JSON
    status: int = 200


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer sent chunk by chunk until the chunks end, the client leaves or the server stops."""

    chunks: AsyncIterator[bytes]
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: asyncio.Event | None = None
    """Once set, the connection is dropped at once, whatever of it the client has not read."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The connection is another protocol's from now on; for clients that asked for that."""

    name: str
    """The protocol, as the client's Upgrade header names it."""
    make: Callable[[], asyncio.Protocol]
    """Called once the client is told, unless it has hung up."""


Answer: TypeAlias = HttpResponse | Pieces | Stream | Upgrade
Handler: TypeAlias = Callable[[HttpRequest], Awaitable[Answer]]
Admission: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse | int]]
"""By a request's head: the refusal, or how many bytes of body are read before the handler."""


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode(value))


def decode_json(body: Body) -> Any:
    """The JSON value in a body; raises ValueError with the place of the first mistake."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"body is not JSON: {error}") from error
