"""Between ASGI and a handler: reads the body within limits, sends answers and streams.

Health paths are answered here, so that every service has the same ones.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

import structlog

from slicewise.httpd.message import (
    TEXT,
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
from slicewise.httpd.settings import ServerSettings
from slicewise.model import SlicewiseError

_log = structlog.get_logger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

LIVE_PATHS = frozenset({"/livez", "/healthz"})
READY_PATH = "/readyz"


class BodyTooLargeError(SlicewiseError):
    """The request body exceeds the limit."""


class App:
    def __init__(self, handler: Handler, settings: ServerSettings) -> None:
        self._handler = handler
        self._settings = settings
        self.ready: Callable[[], bool] = lambda: True
        self.stopping = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                body = await read_body(receive, scope["headers"], self._settings.max_body_bytes)
        except TimeoutError:
            seconds = self._settings.request_seconds
            # The rest of the body may still arrive, and is not the next request.
            closing = {"connection": "close"}
            text = f"request body not sent within {seconds:g} s\n".encode()
            await send_response(send, HttpResponse(408, text, content_type=TEXT, headers=closing))
            return
        except BodyTooLargeError:
            limit = self._settings.max_body_bytes
            await send_response(send, _text(413, f"request body over {limit} bytes\n"))
            return
        answer = await self._answer(_request(scope, body, lambda: self._left(receive)))
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

    async def _answer(self, request: HttpRequest) -> Answer:
        """The handler's answer, or a health answer, or the error that took its place."""
        if request.path in LIVE_PATHS:
            return _text(200, "ok")
        if request.path == READY_PATH:
            return _text(200, "ok") if self.ready() else _text(503, "not ready\n")
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await self._handler(request)
        except TimeoutError:
            return _text(504, f"no answer within {self._settings.request_seconds:g} s\n")
        except Exception:
            _log.exception("request failed", method=request.method, path=request.path)
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


async def read_body(receive: Receive, headers: Iterable[tuple[bytes, bytes]], limit: int) -> Body:
    """The whole request body, or BodyTooLargeError as soon as it exceeds the limit."""
    for name, value in headers:
        if name == b"content-length" and int(value) > limit:
            raise BodyTooLargeError
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(first) <= limit:
        return first
    # Joining a list of parts at the end would need twice the memory.
    body, more = bytearray(first), True
    while more and len(body) <= limit:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if len(body) > limit:
        raise BodyTooLargeError
    return body


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


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, text.encode(), content_type=TEXT)
