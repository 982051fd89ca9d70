"""Which path shows what: the page's files, the feed, and why one pod waits. Only GET.

Nothing is redirected and the page asks by relative paths, so that it works behind a proxy.
The feed of a reader is everything first, then what changed, as server-sent events. An event's id
is the revision it brings the reader to; a reader that comes back with it is told what it missed.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Final

from slicewise.dashboard.auth import AccessDecision, Authorizer
from slicewise.dashboard.tables import PageTables
from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.explain.pod_query import refuse_misspelt
from slicewise.httpd import (
    Answer,
    Handler,
    HttpRequest,
    HttpResponse,
    Router,
    Stream,
    json_response,
)
from slicewise.model import Pod, SlicewiseError
from slicewise.state.queries import NotReadyError, PodQueries

TEXT: Final = "text/plain; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFETY: Final[Mapping[str, str]] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_EVENT_STREAM: Final = "text/event-stream"
_HEARTBEAT: Final = b": heartbeat\n\n"
_NO_STORE: Final = {"cache-control": "no-store"}
_WORDS: Final = {
    AccessDecision.UNAUTHENTICATED: b"a token of the cluster is needed\n",
    AccessDecision.FORBIDDEN: b"not allowed to see the cluster's GPUs\n",
    AccessDecision.UNAVAILABLE: b"the API server could not be asked: retry later\n",
}

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

FindPod = Callable[[str, str], Awaitable[Pod | None]]
"""A pod by namespace and name, as the API server has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    rows: int = 500
    """Nodes in one event, so that the first are drawn while the others are on their way."""
    heartbeat_seconds: float = 10.0
    """How often a reader hears that nothing changed."""
    most: int = 64
    """Readers at the same time."""
    review_seconds: float = 60.0
    """How often it is asked again whether a reader may look."""


@dataclass(slots=True, kw_only=True)
class PageContext:
    tables: PageTables
    queries: PodQueries
    authorizer: Authorizer
    find: FindPod
    feed: FeedSettings
    readers: int = 0


def read_assets() -> Mapping[str, HttpResponse]:
    """Every file of the page by its path; the page itself is at the root."""
    found: dict[str, HttpResponse] = {}
    for file in sorted(files("slicewise.dashboard").joinpath("page").iterdir(), key=str):
        ending = "." + file.name.rpartition(".")[2]
        if ending not in _TYPES:
            continue
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        path = "/" if file.name == "index.html" else f"/{file.name}"
        headers = {"etag": tag, "cache-control": "no-cache"}
        found[path] = HttpResponse(200, body, _TYPES[ending], headers)
    return found


def build_handler(context: PageContext) -> Handler:
    router = Router(
        not_found=_say(404, b"no such path\n"), wrong_method=_say(405, b"this page only shows\n")
    )
    for path, asset in read_assets().items():
        router.add(path, partial(_show, asset))
    router.add("/api/feed", partial(_authorized, context, _feed))
    router.add("/api/explain", partial(_authorized, context, _explain))

    async def handle(request: HttpRequest) -> Answer:
        answer = await router.handle(request)
        assert isinstance(answer, HttpResponse | Stream)
        return replace(answer, headers={**SAFETY, **answer.headers})

    return handle


async def _authorized(
    context: PageContext,
    answer: Callable[[PageContext, HttpRequest], Awaitable[HttpResponse | Stream]],
    request: HttpRequest,
) -> HttpResponse | Stream:
    """The answer for a reader who may see the cluster, and a refusal for anyone else."""
    decision = await context.authorizer.decide(request)
    if decision is AccessDecision.ALLOWED:
        return await answer(context, request)
    asks = {"www-authenticate": "Bearer"} if decision is AccessDecision.UNAUTHENTICATED else {}
    return _say(decision.value, _WORDS[decision], asks)


async def _show(asset: HttpResponse, request: HttpRequest) -> HttpResponse:
    unchanged = request.headers.get("if-none-match") == asset.headers["etag"]
    return replace(asset, status=304, body=b"") if unchanged else asset


async def _feed(context: PageContext, request: HttpRequest) -> HttpResponse | Stream:
    if not context.tables.revision:
        return _say(503, b"the cluster is not known yet: retry soon\n", {"retry-after": "1"})
    if context.readers >= context.feed.most:
        return _say(503, b"too many readers: retry later\n", {"retry-after": "5"})
    version = request.headers.get("last-event-id") or request.query.get("since", "")

    async def may_look() -> bool:
        return await context.authorizer.decide(request) is AccessDecision.ALLOWED

    async def chunks() -> AsyncIterator[bytes]:
        context.readers += 1
        try:
            async for event in stream_events(context.tables, context.feed, version, may_look):
                yield event
        finally:
            context.readers -= 1

    return Stream(chunks(), _EVENT_STREAM, _NO_STORE)


async def stream_events(
    tables: PageTables, feed: FeedSettings, version: str, may_look: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Events until the reader leaves or may look no more."""
    loop = asyncio.get_running_loop()
    reviewed = loop.time()
    at = tables.read_version(version) if version else None
    if at is None:
        at = tables.revision
        name = tables.version()
        bodies = list(tables.encode_all(feed.rows))
        for number, body in enumerate(bodies, 1):
            # Only the whole of it is something to go on from.
            yield write_event(body, name if number == len(bodies) else None)
    else:
        yield _HEARTBEAT
    while True:
        if loop.time() - reviewed >= feed.review_seconds:
            reviewed = loop.time()
            if not await may_look():
                return
        try:
            async with asyncio.timeout(feed.heartbeat_seconds):
                await tables.wait(at)
        except TimeoutError:
            yield _HEARTBEAT
            continue
        body, name, at = tables.encode_since(at), tables.version(), tables.revision
        yield write_event(body, name)


def write_event(body: bytes, name: str | None) -> bytes:
    head = b"" if name is None else b"id: %b\n" % name.encode()
    return head + b"data: " + body + b"\n\n"


async def _explain(context: PageContext, request: HttpRequest) -> HttpResponse:
    name = request.query.get("pod", "")
    namespace, _, short = name.rpartition("/")
    if not short:
        return _say(400, b"pod: expected namespace/name\n")
    pod = await context.find(namespace or "default", short)
    if pod is None:
        return _say(404, f"pod {name!r}: not found\n".encode())
    try:
        refuse_misspelt(pod)
        query = context.queries.build(pod)
        names = sorted(query.snapshot.slots)
        inquiry = PodInquiry.of(query, names, context.queries.screen(query, names))
        # Trying changes may take seconds, and other readers must not wait for it.
        answer = json_response(await asyncio.to_thread(explain_pod, inquiry))
    except NotReadyError as error:
        return _say(503, f"{error}\n".encode())
    except SlicewiseError as error:
        return _say(400, f"{error}\n".encode())
    return replace(answer, headers=_NO_STORE)


def _say(status: int, text: bytes, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(status, text, TEXT, {**_NO_STORE, **(headers or {})})
