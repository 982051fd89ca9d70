"""From method and path to a handler: one table for each service, and the answers 404 and 405.

An exact path is one lookup in a dict. A path may end in one parameter, as in `/nodes/{name}`,
which the handler finds in `request.parameters`. A route says how large its bodies may be and who
may send them, which is decided by the head of a request, before its body is read.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from slicewise.httpd.message import JSON, TEXT, Answer, Handler, HttpRequest, HttpResponse

GET: Final = ("GET", "HEAD")
POST: Final = ("POST",)
OTHER: Final = "other"
"""What stands for every path that no route has, so that metrics stay bounded."""
SMALL_BODY: Final = 64 << 10
"""The largest body of a route that does not say more; without POST there is none at all."""
_SLASHES: Final = re.compile("/{2,}")
_NOT_FOUND: Final = HttpResponse(404, b"no such path\n", content_type=TEXT)
_WRONG_METHOD: Final = HttpResponse(405, b"wrong method\n", content_type=TEXT)
_NOT_JSON: Final = HttpResponse(415, b"content-type: expected application/json\n", TEXT)

Refusal: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Why a request's sender may not do this, by its head; None when it may."""


@dataclass(frozen=True, slots=True)
class BodyRule:
    """Which bodies a route takes; others are turned away unread."""

    most: int = SMALL_BODY
    """Its size in bytes."""
    refusal: Refusal | None = None
    """Asked for each request, before anything of its body is read."""
    json: bool = False
    """Whether it must be declared as JSON, which a web page cannot do for another site."""


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
    refuse: HttpResponse
    """The answer to every other method."""
    body: BodyRule


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
        self._not_found = not_found
        self._wrong_method = wrong_method
        self._exact: dict[str, _Route] = {}
        self._below: dict[str, tuple[str, _Route]] = {}
        """Routes that end in a parameter, by what stands before it: the parameter's name first."""

    def add(
        self,
        path: str,
        handler: Handler,
        methods: Iterable[str] = GET,
        *,
        body: BodyRule | None = None,
    ) -> None:
        """Have a handler answer this path for these methods."""
        allowed = tuple(methods)
        headers = {**self._wrong_method.headers, "allow": ", ".join(allowed)}
        head, brace, parameter = path.partition("{")
        route = _Route(
            name=head.rstrip("/") if brace else path,
            methods=allowed,
            handler=handler,
            refuse=replace(self._wrong_method, headers=headers),
            body=body or BodyRule(SMALL_BODY if "POST" in allowed else 0),
        )
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
        route, request = self._find(request)
        if route is None:
            return RouteMatch(OTHER, _always(self._not_found), request)
        allowed = request.method in route.methods
        handler = route.handler if allowed else _always(route.refuse)
        return RouteMatch(route.name, handler, request)

    async def handle(self, request: HttpRequest) -> Answer:
        match = self.match(request)
        return await match.handler(match.request)

    async def admit(self, head: HttpRequest) -> HttpResponse | int:
        """How large a body the route takes of this sender, or why it takes none."""
        route, head = self._find(head)
        if route is None:
            return self._not_found
        if head.method not in route.methods:
            return route.refuse
        rule = route.body
        if rule.json and head.method == "POST" and not _is_json(head):
            return _NOT_JSON
        refused = None if rule.refusal is None else await rule.refusal(head)
        return refused or rule.most

    def _find(self, request: HttpRequest) -> tuple[_Route | None, HttpRequest]:
        """The route of a path, and the request with the route's parameter."""
        path = request.path
        route = self._exact.get(path)
        if route is None and self._lenient:
            path = _SLASHES.sub("/", path).rstrip("/") or "/"
            route = self._exact.get(path)
        if route is not None:
            return route, request
        head, slash, last = path.rpartition("/")
        found = self._below.get(head + slash)
        if found is None or not last:
            return None, request
        return found[1], replace(request, parameters={found[0]: last})


def _is_json(head: HttpRequest) -> bool:
    return head.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON


def _always(answer: HttpResponse) -> Handler:
    async def handle(request: HttpRequest) -> Answer:  # noqa: ARG001
        return answer

    return handle
