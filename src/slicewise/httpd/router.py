"""From method and path to a handler: one table for each service, and the answers 404 and 405.

An exact path is one lookup in a dict. A path may end in one parameter, as in `/nodes/{name}`,
which the handler finds in `request.parameters`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from slicewise.httpd.message import TEXT, Answer, Handler, HttpRequest, HttpResponse

GET: Final = ("GET", "HEAD")
POST: Final = ("POST",)
OTHER: Final = "other"
"""What stands for every path that no route has, so that metrics stay bounded."""
_SLASHES: Final = re.compile("/{2,}")
_NOT_FOUND: Final = HttpResponse(404, b"no such path\n", content_type=TEXT)
_WRONG_METHOD: Final = HttpResponse(405, b"wrong method\n", content_type=TEXT)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """What answers a request: the route's name, its handler, and the request it is given."""

    name: str
    """The route's path without its parameter."""
    handler: Handler
    request: HttpRequest


@dataclass(frozen=True, slots=True)
class _Route:
    name: str
    methods: tuple[str, ...]
    handler: Handler
    refuse: Handler
    """The handler for every other method."""


class Router:
    """Routes by path; `lenient` takes repeated and trailing slashes for one or none."""

    def __init__(
        self,
        *,
        lenient: bool = False,
        not_found: HttpResponse = _NOT_FOUND,
        wrong_method: HttpResponse = _WRONG_METHOD,
    ) -> None:
        self._lenient = lenient
        self._not_found = _always(not_found)
        self._wrong_method = wrong_method
        self._exact: dict[str, _Route] = {}
        self._below: dict[str, tuple[str, _Route]] = {}
        """Routes that end in a parameter, by what stands before it: the parameter's name first."""

    def add(self, path: str, handler: Handler, methods: Iterable[str] = GET) -> None:
        """Have a handler answer this path for these methods."""
        allowed = tuple(methods)
        headers = {**self._wrong_method.headers, "allow": ", ".join(allowed)}
        refuse = _always(replace(self._wrong_method, headers=headers))
        head, brace, parameter = path.partition("{")
        route = _Route(head.rstrip("/") if brace else path, allowed, handler, refuse)
        if brace:
            self._below[head] = (parameter.removesuffix("}"), route)
        else:
            self._exact[path] = route

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is served, parameters in braces."""
        return (*self._exact, *(f"{head}{{{name}}}" for head, (name, _) in self._below.items()))

    def match(self, request: HttpRequest) -> RouteMatch:
        """What answers this request; there is always something."""
        path = request.path
        route = self._exact.get(path)
        if route is None and self._lenient:
            path = _SLASHES.sub("/", path).rstrip("/") or "/"
            route = self._exact.get(path)
        if route is None:
            head, slash, last = path.rpartition("/")
            found = self._below.get(head + slash)
            if found is None or not last:
                return RouteMatch(OTHER, self._not_found, request)
            parameter, route = found
            request = replace(request, parameters={parameter: last})
        handler = route.handler if request.method in route.methods else route.refuse
        return RouteMatch(route.name, handler, request)

    async def handle(self, request: HttpRequest) -> Answer:
        match = self.match(request)
        return await match.handler(match.request)


def _always(answer: HttpResponse) -> Handler:
    async def handle(request: HttpRequest) -> Answer:  # noqa: ARG001
        return answer

    return handle
