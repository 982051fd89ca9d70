"""Between ASGI and a handler: admits by the head, reads the body, sends answers and streams.

Health paths are answered here, so that every service has the same ones. A request that is
refused by its head has its body left unread, and ends its connection.
"""

import asyncio
import contextlib
import types
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    MutableMapping,
)
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote

import structlog

from slicewise.httpd.limiter import OverloadError, TrackedConnection
from slicewise.httpd.message import (
    TEXT,
    Admission,
    Answer,
    Body,
    CutError,
    Handler,
    HttpRequest,
    HttpResponse,
    Pieces,
    Stream,
    Upgrade,
)
from slicewise.httpd.settings import ServerSettings, is_loopback
from slicewise.model import SlicewiseError

_log = structlog.get_logger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

T = TypeVar("T")


class TakeBody(Protocol):
    """Hears of each piece of a body, and whether another follows."""

    def __call__(self, size: int, *, more: bool) -> None: ...


LIVE_PATHS = frozenset({"/livez", "/healthz"})
READY_PATH = "/readyz"
LEAD_PATH = "/leadz"
_SAFE_METHODS: Final = ("GET", "HEAD")
_ELSEWHERE: Final = ("cross-site", "same-site")


class BodyTooLargeError(SlicewiseError):
    """The request body exceeds the limit."""


class DisconnectedError(SlicewiseError):
    """The client hung up before the end of its request."""


class App:
    def __init__(
        self, handler: Handler, settings: ServerSettings, admit: Admission | None = None
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._admit = admit
        self._only_local = settings.only_local
        self.unready: Callable[[], str | None] = lambda: None
        """Why the service cannot be used at present; None when it can."""
        self.following: Callable[[], str | None] | None = None
        """Why this process does not lead; None when it does. Services of which all are alike have
        none, and no path for it."""
        self.failure: Callable[[], str | None] = lambda: None
        """What is broken for good, so that only a restart helps; None when nothing is."""
        self.stopping = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        connection: TrackedConnection = scope["state"]["connection"]
        head = _request(scope, b"", lambda: self._left(receive))
        limit = self._check_health(head) or await self._choose_limit(head)
        if isinstance(limit, HttpResponse):
            await send_response(send, _close(limit) if _has_body(head) else limit)
            return
        try:
            sent = _has_body(head)
            body = await self._read(receive, head, limit, connection) if sent else b""
        except DisconnectedError:
            return
        if isinstance(body, HttpResponse):
            await send_response(send, _close(body))
            return
        connection.work()
        try:
            request = head.with_body(body) if body else head
            await self._send(await self._run(self._handler(request), head), scope, receive, send)
        finally:
            connection.limiter.release_body(connection)

    async def _send(self, answer: Answer, scope: Message, receive: Receive, send: Send) -> None:
        if isinstance(answer, Stream):
            await self._send_stream(answer, receive, send)
            if answer.cut is not None and answer.cut.is_set():
                scope["state"]["abort"]()
        elif isinstance(answer, Pieces):
            await send_pieces(send, answer)
        elif isinstance(answer, Upgrade):
            scope["state"]["switch"](answer)
        else:
            await send_response(send, answer)

    def _check_health(self, head: HttpRequest) -> HttpResponse | None:
        if head.path in LIVE_PATHS:
            broken = self.failure()
            return _text(200, "ok") if broken is None else _text(500, f"broken: {broken}\n")
        if head.path == READY_PATH:
            why = self.failure() or self.unready()
            return _text(200, "ok") if why is None else _text(503, f"not ready: {why}\n")
        if head.path == LEAD_PATH and self.following is not None:
            why = self.failure() or self.following()
            return _text(200, "ok") if why is None else _text(503, f"not leading: {why}\n")
        return None

    async def _choose_limit(self, head: HttpRequest) -> HttpResponse | int:
        """How large the body may be, or why the request is refused."""
        tls, peer = self._settings.tls, head.peer
        if tls is not None and tls.client_names:
            name = "" if peer is None else peer.common_name
            if name not in tls.client_names:
                return _text(403, f"client certificate of {name!r}: not among the allowed names\n")
        if self._only_local and (why := find_browser(head)):
            return _text(403, f"{why}\n")
        most = self._settings.max_body_bytes
        if self._admit is None:
            return most
        limit = await self._run(self._admit(head), head)
        return min(limit, most) if isinstance(limit, int) else limit

    async def _read(
        self, receive: Receive, head: HttpRequest, limit: int, connection: TrackedConnection
    ) -> Body | HttpResponse:
        limits, seconds = self._settings.limits, self._settings.request_seconds or inf
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection.wait("body")
        timer: asyncio.Timeout | None = None
        deadline = began + min(limits.body_seconds, seconds)

        def take(size: int, *, more: bool) -> None:
            nonlocal deadline
            connection.limiter.take_body(connection, size)
            if more:
                allowed = limits.body_seconds + connection.body_bytes / limits.bytes_per_second
                deadline = began + min(seconds, allowed)
                if timer is not None:
                    timer.reschedule(deadline)

        try:
            steps = read_body(receive, head.headers, limit, take).__await__()
            try:
                # Most bodies have come with their heads, and are not waited for.
                waits_for = next(steps)
            except StopIteration as end:
                body: Body = end.value
                return body
            async with asyncio.timeout_at(deadline) as timer:
                return await _go_on(steps, waits_for)
        except TimeoutError:
            spent = f"{loop.time() - began:.3g} s"
            failure = _text(408, f"request body not sent within {spent}\n")
        except BodyTooLargeError:
            failure = _text(413, f"request body over {limit} bytes\n")
        except OverloadError as error:
            failure = _text(503, f"{error}: retry later\n")
        connection.limiter.release_body(connection)
        return failure

    async def _run(self, work: Awaitable[T], head: HttpRequest) -> T | HttpResponse:
        """What the service says, or the error that took its place."""
        try:
            return await finish_within(work, self._settings.request_seconds)
        except TimeoutError:
            return _text(504, f"no answer within {self._settings.request_seconds:g} s\n")
        except Exception:
            _log.exception("request failed", method=head.method, path=head.path)
            return _text(500, "internal error\n")

    async def _send_stream(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Send chunks until they end, the client leaves or the server stops."""
        await send(_start(200, stream.content_type, stream.headers.items()))
        # The empty chunk flushes the headers before the first event exists.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        ends = [] if stream.cut is None else [_wait_for(stream.cut)]
        failure = (await _race(_pump(stream.chunks, send), self._left(receive), *ends))[0]
        if isinstance(failure, CutError) or (stream.cut is not None and stream.cut.is_set()):
            return
        if isinstance(failure, Exception):
            _log.error("stream failed", exc_info=failure)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _left(self, receive: Receive) -> None:
        """Returns once the client has hung up or the server stops."""
        await _race(_disconnected(receive), _wait_for(self.stopping))


async def finish_within(work: Awaitable[T], seconds: float | None) -> T:
    """What the work comes to; most of it ends without waiting for anything, and needs no timer."""
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    async with asyncio.timeout(seconds):
        return await _go_on(steps, waits_for)


@types.coroutine
def _go_on(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Work that has begun, and waits for this."""
    while True:
        try:
            sent = yield waits_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            take = partial(steps.throw, error)
        else:
            take = partial(steps.send, sent)
        try:
            waits_for = take()
        except StopIteration as end:
            result: T = end.value
            return result


async def read_body(
    receive: Receive, headers: Mapping[str, str], limit: int, take: TakeBody
) -> Body:
    """The whole request body, or BodyTooLargeError as soon as it exceeds the limit."""
    if int(headers.get("content-length") or 0) > limit:
        raise BodyTooLargeError
    body: Body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        piece: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if len(body) + len(piece) > limit:
            raise BodyTooLargeError
        if piece:
            take(len(piece), more=more)
        # Joining a list of parts at the end would need twice the memory.
        if not body:
            body = piece
        else:
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += piece
        if not more:
            return body


def find_browser(head: HttpRequest) -> str | None:
    """Why this may be a web page's request in the browser of somebody on this machine."""
    host = head.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if host and not is_loopback(name.strip("[]")):
        return f"Host {host!r}: expected localhost or a loopback address"
    site = head.headers.get("sec-fetch-site", "")
    origin = head.headers.get("origin", f"http://{host}")
    if site in _ELSEWHERE or (head.method not in _SAFE_METHODS and origin != f"http://{host}"):
        return f"Origin {origin!r}: expected no page of another site"
    return None


async def send_response(send: Send, response: HttpResponse) -> None:
    """Send one whole answer, or the part of it before its cut."""
    length = (("content-length", str(len(response.body))),)
    await send(_start(response.status, response.content_type, (*response.headers.items(), *length)))
    if response.cut_after is None:
        await send({"type": "http.response.body", "body": response.body, "more_body": False})
        return
    # Leaving an answer unfinished makes the server close the connection.
    part = response.body[: response.cut_after]
    await send({"type": "http.response.body", "body": part, "more_body": True})


async def send_pieces(send: Send, answer: Pieces) -> None:
    """Send an answer piece by piece, so that a large one is never in memory as a whole."""
    length = (("content-length", str(answer.length)),)
    await send(_start(answer.status, answer.content_type, length))
    for piece in answer.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pump(chunks: AsyncIterator[bytes], send: Send) -> None:
    """Send every chunk, closing the source when done."""
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            with contextlib.suppress(RuntimeError):
                await close()


async def _race(*steps: Coroutine[Any, Any, None]) -> list[BaseException | None]:
    """How each step ended, once the first has ended and the others are cancelled."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return results


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request(scope: Message, body: Body, gone: Callable[[], Awaitable[None]]) -> HttpRequest:
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    return HttpRequest(
        method=scope["method"],
        path=unquote(raw_path.split(b"?", 1)[0].decode("ascii", "replace")),
        query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
        headers=dict(fields),
        body=body,
        gone=gone,
        peer=scope["state"].get("peer"),
        fields=fields,
    )


def _start(status: int, content_type: str, headers: Iterable[tuple[str, str]]) -> Message:
    pairs = [(b"content-type", content_type.encode("latin-1"))]
    pairs.extend((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)
    return {"type": "http.response.start", "status": status, "headers": pairs}


def _has_body(head: HttpRequest) -> bool:
    return head.headers.get("content-length", "0") != "0" or "transfer-encoding" in head.headers


def _close(response: HttpResponse) -> HttpResponse:
    """The answer to a request whose body may still arrive and is not the next request."""
    return replace(response, headers={**response.headers, "connection": "close"})


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, text.encode(), content_type=TEXT)
