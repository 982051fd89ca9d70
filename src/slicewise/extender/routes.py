"""Which path does what: our own routes and those that each system's users have configured.

Answers are the same whatever stands before a path; nothing is redirected, so that every route
works behind the API server's proxy as well.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from slicewise import __version__
from slicewise.extender.handlers import GPUSCHEDULER, OWN, PLACE, PREDICATES, TEXT, Extender
from slicewise.extender.metrics import CONTENT_TYPE
from slicewise.extender.views import inspect, status
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

_INSPECT: Final = "/gpushare-scheduler/inspect"
_SCHEDULE: Final = "/apis/metrics.nvidia.com/v1alpha1/schedule"
_PPROF: Final = "Slicewise is not a Go program and has no pprof; see /metrics.\n"


def build_routes(extender: Extender, *, commit_in_filter: bool = False) -> Router:
    """Every path and its route; `/scheduler/filter` commits when it is told to."""
    shared = PREDICATES if commit_in_filter else OWN
    posts: dict[str, Handler] = {
        "/filter": partial(_body, partial(extender.filter, flavour=OWN)),
        "/filter-dryrun": partial(_body, partial(extender.filter, flavour=OWN)),
        "/place": partial(_body, partial(extender.filter, flavour=PLACE)),
        "/prioritize": partial(_body, extender.prioritize),
        "/preempt": partial(_body, extender.preempt),
        "/bind": partial(_body, extender.bind),
        "/what-if": partial(_body, extender.what_if),
        "/scheduler/predicates": partial(_body, partial(extender.filter, flavour=PREDICATES)),
        "/scheduler/filter": partial(_body, partial(extender.filter, flavour=shared)),
        "/scheduler/priorities": partial(_body, extender.prioritize),
        "/scheduler/bind": partial(_body, extender.bind),
        "/gpushare-scheduler/filter": partial(_body, extender.filter),
        "/gpushare-scheduler/bind": partial(_body, extender.bind),
        f"{_SCHEDULE}/filter": partial(_body, partial(extender.filter, flavour=GPUSCHEDULER)),
        f"{_SCHEDULE}/prioritize": partial(
            _body, partial(extender.prioritize, flavour=GPUSCHEDULER)
        ),
        f"{_SCHEDULE}/preempt": partial(_body, partial(extender.preempt, flavour=GPUSCHEDULER)),
    }
    gets: dict[str, Handler] = {
        "/scheduler/status": partial(_status, extender),
        _INSPECT: partial(_inspect, extender),
        f"{_INSPECT}/{{node}}": partial(_inspect, extender),
        "/version": _version,
        "/metrics": partial(_metrics, extender),
        "/debug/pprof": _pprof,
    }
    router = Router(lenient=True)
    for path, handler in posts.items():
        router.add(path, handler, ("POST",))
    for path, handler in gets.items():
        router.add(path, handler)
    router.add("/explain", partial(_explain, extender), ("GET", "POST"))
    return router


def build_handler(extender: Extender, *, commit_in_filter: bool = False) -> Handler:
    """The handler of the whole service."""
    router = build_routes(extender, commit_in_filter=commit_in_filter)

    async def handle(request: HttpRequest) -> Answer:
        match = router.match(request)
        response = await match.handler(match.request)
        if isinstance(response, HttpResponse) and not extender.state.ready:
            # A kept connection would hold the scheduler to one that no longer leads.
            headers = {**response.headers, "connection": "close"}
            response = replace(response, headers=headers)
        if isinstance(response, HttpResponse | Pieces):
            extender.metrics.answered(match.name, response.status)
        return response

    return handle


async def _body(run: Callable[[Body], Awaitable[Answer]], request: HttpRequest) -> Answer:
    return await run(request.body)


async def _explain(extender: Extender, request: HttpRequest) -> HttpResponse:
    return await extender.explain(request.body, dict(request.query))


async def _inspect(extender: Extender, request: HttpRequest) -> HttpResponse:
    return json_response(inspect(extender.state.snapshot(), request.parameters.get("node")))


async def _status(extender: Extender, request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return json_response(status(extender.state.snapshot()))


async def _metrics(extender: Extender, request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, extender.metrics.render(), content_type=CONTENT_TYPE)


async def _version(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, __version__.encode(), content_type=TEXT)


async def _pprof(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, _PPROF.encode(), content_type=TEXT)
