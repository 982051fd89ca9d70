"""The routes of the extender: our own, and those of each original system.

Nothing is redirected, so that every route works behind the API server's proxy as well.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from slicewise import __version__
from slicewise.dialects.shared.routes import ExtenderRoute, SnapshotRoute, Verb
from slicewise.extender.handlers import TEXT, Extender
from slicewise.extender.metrics import CONTENT_TYPE
from slicewise.httpd import (
    Answer,
    Body,
    Handler,
    HttpRequest,
    HttpResponse,
    Pieces,
    Router,
    json_response,
)
from slicewise.httpd.router import POST

_PPROF: Final = "Slicewise is not a Go program and has no pprof; see /metrics.\n"


def build_routes(extender: Extender, *, commit_in_filter: bool = False) -> Router:
    """Every path and its route; filters that may commit do so when they are told to."""
    router = Router(lenient=True)
    for route in extender.dialects.routes.values():
        run = _choose_handler(extender, route, commit_in_filter=commit_in_filter)
        router.add(route.path, partial(_body, run), POST)
    for view in extender.dialects.views:
        router.add(view.path, partial(_show, extender, view))
        if view.by_node:
            router.add(f"{view.path}/{{node}}", partial(_show, extender, view))
    router.add("/what-if", partial(_body, extender.what_if), POST)
    router.add("/explain", partial(_explain, extender), ("GET", "POST"))
    router.add("/version", _version)
    router.add("/metrics", partial(_metrics, extender))
    router.add("/debug/pprof", _pprof)
    return router


def build_handler(extender: Extender, *, commit_in_filter: bool = False) -> Handler:
    router = build_routes(extender, commit_in_filter=commit_in_filter)

    async def handle(request: HttpRequest) -> Answer:
        match = router.match(request)
        response = await match.handler(match.request)
        if isinstance(response, HttpResponse) and not extender.state.ready:
            # A kept-alive connection would pin the scheduler to a replica that does not lead.
            headers = {**response.headers, "connection": "close"}
            response = replace(response, headers=headers)
        if isinstance(response, HttpResponse | Pieces):
            extender.metrics.answered(match.name, response.status)
        return response

    return handle


def _choose_handler(
    extender: Extender, route: ExtenderRoute, *, commit_in_filter: bool
) -> Callable[[Body], Awaitable[Answer]]:
    options = route.options
    if route.may_commit and commit_in_filter:
        options = replace(options, commits=True)
    match route.verb:
        case Verb.FILTER:
            return partial(extender.filter, options=options)
        case Verb.PRIORITIZE:
            return partial(extender.prioritize, options=options)
        case Verb.PREEMPT:
            return extender.preempt
        case Verb.BIND:
            return extender.bind


async def _body(run: Callable[[Body], Awaitable[Answer]], request: HttpRequest) -> Answer:
    return await run(request.body)


async def _explain(extender: Extender, request: HttpRequest) -> HttpResponse:
    return await extender.explain(request.body, dict(request.query))


async def _show(extender: Extender, view: SnapshotRoute, request: HttpRequest) -> HttpResponse:
    return json_response(view.show(extender.state.snapshot(), request.parameters.get("node")))


async def _metrics(extender: Extender, request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, extender.metrics.render(), content_type=CONTENT_TYPE)


async def _version(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, __version__.encode(), content_type=TEXT)


async def _pprof(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, _PPROF.encode(), content_type=TEXT)
