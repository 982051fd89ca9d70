"""Which path shows what: the page's files, the feed, and why one pod waits. Only GET.

Nothing is redirected and the page asks by relative paths, so that it works behind a proxy.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Final

from slicewise.dashboard.auth import AccessDecision, Authorizer
from slicewise.dashboard.feed import EVENT_STREAM, FeedSettings, stream_events
from slicewise.dashboard.tables import PageTables
from slicewise.explain.explanation import PodInquiry, explain_pod
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


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its bytes, its type, and a name for exactly these bytes."""

    body: bytes
    content_type: str
    tag: str


@dataclass(slots=True, kw_only=True)
class PageContext:
    tables: PageTables
    queries: PodQueries
    authorizer: Authorizer
    find: FindPod
    feed: FeedSettings
    readers: int = 0


def read_assets() -> Mapping[str, Asset]:
    """Every file of the page by its path; the page itself is at the root."""
    found: dict[str, Asset] = {}
    for file in sorted(files("slicewise.dashboard").joinpath("page").iterdir(), key=str):
        ending = "." + file.name.rpartition(".")[2]
        if ending not in _TYPES:
            continue
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        path = "/" if file.name == "index.html" else f"/{file.name}"
        found[path] = Asset(body, _TYPES[ending], tag)
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


async def _show(asset: Asset, request: HttpRequest) -> HttpResponse:
    headers = {"etag": asset.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return HttpResponse(304, b"", asset.content_type, headers)
    return HttpResponse(200, asset.body, asset.content_type, headers)


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

    return Stream(chunks(), EVENT_STREAM, _NO_STORE)


async def _explain(context: PageContext, request: HttpRequest) -> HttpResponse:
    name = request.query.get("pod", "")
    namespace, _, short = name.rpartition("/")
    if not short:
        return _say(400, b"pod: expected namespace/name\n")
    pod = await context.find(namespace or "default", short)
    if pod is None:
        return _say(404, f"pod {name!r}: not found\n".encode())
    try:
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
