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
    Admission,
    Answer,
    Body,
    Handler,
    HttpRequest,
    HttpResponse,
    Pieces,
    Router,
    json_response,
)
from slicewise.httpd.router import POST, BodyRule

# Schedulers that do not cache nodes send 5,000 of them whole; a server's own limit is less yet.
_NODES: Final = BodyRule(1 << 30, json=True)
_PODS: Final = BodyRule(16 << 20, json=True)
_NAMES: Final = BodyRule(json=True)
_PPROF: Final = "Slicewise is not a Go program and has no pprof; see /metrics.\n"


def build_routes(extender: Extender, *, commit_in_filter: bool = False) -> Router:
    """Every path and its route; filters that may commit do so when they are told to."""
    router = Router(lenient=True)
    for route in extender.dialects.routes.values():
        run = _choose_handler(extender, route, commit_in_filter=commit_in_filter)
        rule = _NAMES if route.verb is Verb.BIND else _NODES
        router.add(route.path, partial(_body, run), POST, body=rule)
    for view in extender.dialects.views:
        router.add(view.path, partial(_show, extender, view))
        if view.by_node:
            router.add(f"{view.path}/{{node}}", partial(_show, extender, view))
    router.add("/what-if", partial(_body, extender.what_if), POST, body=_PODS)
    router.add("/explain", partial(_explain, extender), ("GET", "POST"), body=_PODS)
    router.add("/keep-room", partial(_body, extender.keep_room), POST, body=_NAMES)
    router.add("/version", _version)
    router.add("/metrics", partial(_metrics, extender))
    router.add("/debug/pprof", _pprof)
    return router


def build_plain_routes(extender: Extender) -> Router:
    """What a listener without TLS answers beside probes: figures, and nothing that decides."""
    router = Router(lenient=True)
    router.add("/version", _version)
    router.add("/metrics", partial(_metrics, extender))
    return router


def build_handler(extender: Extender, router: Router | None = None) -> Handler:
    router = router or build_routes(extender)

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


def build_admission(extender: Extender, router: Router) -> Admission:
    async def admit(head: HttpRequest) -> HttpResponse | int:
        admitted = await router.admit(head)
        if isinstance(admitted, HttpResponse):
            extender.metrics.answered(router.match(head).name, admitted.status)
        return admitted

    return admit


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
