"""Which path does what: our own routes and those that each system's users have configured.

Answers are the same whatever stands before a path; nothing is redirected, so that every route
works behind the API server's proxy as well.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from slicewise import __version__
from slicewise.extender.handlers import GPUSCHEDULER, OWN, PLACE, PREDICATES, TEXT, Extender
from slicewise.extender.metrics import CONTENT_TYPE
from slicewise.extender.views import inspect, status
from slicewise.httpd import Answer, Body, Handler, HttpRequest, HttpResponse, Pieces, json_response

Route = Callable[[HttpRequest], Awaitable[Answer]]

_SLASHES: Final = re.compile("/{2,}")
_INSPECT: Final = "/gpushare-scheduler/inspect"
_SCHEDULE: Final = "/apis/metrics.nvidia.com/v1alpha1/schedule"
_PPROF: Final = "Slicewise is not a Go program and has no pprof; see /metrics.\n"


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One route: the methods it takes and what it does."""

    methods: tuple[str, ...]
    run: Route


def build_routes(extender: Extender, *, commit_in_filter: bool = False) -> Mapping[str, RouteEntry]:
    """Every path and its route; `/scheduler/filter` commits when it is told to."""
    shared = PREDICATES if commit_in_filter else OWN
    posts: dict[str, Route] = {
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
    gets: dict[str, Route] = {
        "/scheduler/status": partial(_status, extender),
        _INSPECT: partial(_inspect, extender),
        "/version": _version,
        "/metrics": partial(_metrics, extender),
        "/debug/pprof": _pprof,
    }
    return {
        **{path: RouteEntry(("POST",), run) for path, run in posts.items()},
        **{path: RouteEntry(("GET", "HEAD"), run) for path, run in gets.items()},
        "/explain": RouteEntry(("GET", "POST"), partial(_explain, extender)),
    }


def build_handler(extender: Extender, *, commit_in_filter: bool = False) -> Handler:
    """The handler of the whole service."""
    routes = build_routes(extender, commit_in_filter=commit_in_filter)

    async def handle(request: HttpRequest) -> Answer:
        path = _SLASHES.sub("/", request.path).rstrip("/") or "/"
        route, entry = path, routes.get(path)
        if entry is None and path.startswith(f"{_INSPECT}/"):
            route, entry = _INSPECT, routes[_INSPECT]
        if entry is None:
            response: Answer = HttpResponse(404, b"no such path\n", content_type=TEXT)
            route = "other"
        elif request.method not in entry.methods:
            allow = {"allow": ", ".join(entry.methods)}
            response = HttpResponse(405, b"wrong method\n", content_type=TEXT, headers=allow)
        else:
            response = await entry.run(request)
        if isinstance(response, HttpResponse) and not extender.state.ready:
            # A kept connection would hold the scheduler to one that no longer leads.
            headers = {**response.headers, "connection": "close"}
            response = replace(response, headers=headers)
        if isinstance(response, HttpResponse | Pieces):
            extender.metrics.answered(route, response.status)
        return response

    return handle


async def _body(run: Callable[[Body], Awaitable[Answer]], request: HttpRequest) -> Answer:
    return await run(request.body)


async def _explain(extender: Extender, request: HttpRequest) -> HttpResponse:
    return await extender.explain(request.body, dict(request.query))


async def _inspect(extender: Extender, request: HttpRequest) -> HttpResponse:
    path = _SLASHES.sub("/", request.path).rstrip("/")
    name = path.removeprefix(_INSPECT).lstrip("/") or None
    return json_response(inspect(extender.state.snapshot(), name))


async def _status(extender: Extender, request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return json_response(status(extender.state.snapshot()))


async def _metrics(extender: Extender, request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, extender.metrics.render(), content_type=CONTENT_TYPE)


async def _version(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, __version__.encode(), content_type=TEXT)


async def _pprof(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return HttpResponse(200, _PPROF.encode(), content_type=TEXT)
