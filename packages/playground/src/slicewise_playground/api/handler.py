"""The API over HTTP: every request becomes one verb on the store, every refusal a Status."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from slicewise.httpd import HttpRequest, HttpResponse, Stream, decode_json, json_response
from slicewise.httpd.message import TEXT
from slicewise_playground.api import discovery
from slicewise_playground.api.deletion import DeleteOptions, delete, delete_many
from slicewise_playground.api.encodings import encode_event, read_body, show
from slicewise_playground.api.fault_routes import FaultRoutes
from slicewise_playground.api.faults import FaultInjector, FaultTarget, InjectedFault
from slicewise_playground.api.lists import check_options, list_page, read_revision
from slicewise_playground.api.negotiation import wants_aggregated
from slicewise_playground.api.protobuf import MEDIA_TYPE, read_protobuf
from slicewise_playground.api.response_views import ResponseView
from slicewise_playground.api.reviews import ReviewAnswers
from slicewise_playground.api.routing import ApiRoute, route
from slicewise_playground.api.subresources import bind, evict, read_scale, write_scale
from slicewise_playground.api.watches import HistoryReader, WatchOptions, WatchStream
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.objects.errors import (
    ApiError,
    bad_request,
    unknown_path,
    unsupported_media,
)
from slicewise_playground.objects.patches import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    apply_json_patch,
    merge,
)
from slicewise_playground.objects.resources import Object
from slicewise_playground.objects.schemas import check_fields
from slicewise_playground.objects.selectors import select
from slicewise_playground.objects.shapes import check_shape
from slicewise_playground.objects.strategic_merge import strategic_merge

PATCHES = {
    JSON_PATCH: apply_json_patch,
    MERGE_PATCH: merge,
    STRATEGIC_PATCH: strategic_merge,
}
BODIES = frozenset({"", "application/json"})
READS = frozenset({"get", "list", "watch"})
LOG_ANNOTATION = "playground.slicewise.io/log"
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class ApiHandler:
    """The handler of the embedded API."""

    def __init__(self, api: EmbeddedApi, faults: FaultInjector, answers: ReviewAnswers) -> None:
        """Serve an API, subject to faults."""
        self.api = api
        self.store = api.store
        self.faults = faults
        self.answers = answers
        self.watchers: set[HistoryReader] = set()
        self.written: Counter[FaultTarget] = Counter()
        """How often each write was carried out, whether or not its answer arrived."""
        self.asked: Counter[FaultTarget] = Counter()
        """How often each request arrived, reads included."""
        self._admin = FaultRoutes(self.store, faults, self.watchers)

    async def __call__(self, request: HttpRequest) -> HttpResponse | Stream:
        """Answer one request."""
        if request.path == "/faults" or request.path.startswith("/faults/"):
            return self._admin.answer(request)
        try:
            found = self._discover(request)
            if found is not None:
                return found
            where = route(request.method, request.path, request.query)
            self.asked[where.asked()] += 1
            fault = self.faults.match(where.asked())
            if fault is None:
                return self._perform(where, request)
            return await self._suffer(fault, where, request)
        except ApiError as error:
            return _refusal(error)

    async def _suffer(
        self, fault: InjectedFault, where: ApiRoute, request: HttpRequest
    ) -> HttpResponse | Stream:
        """Answer a request that a fault matches."""
        if fault.action == "delay":
            await asyncio.sleep(fault.seconds)
            return self._perform(where, request)
        answer: HttpResponse | Stream | None = None
        if fault.after or fault.action == "cut":
            answer = self._perform(where, request)
        if fault.action == "hang":
            await request.gone()
        if fault.action == "cut" and isinstance(answer, HttpResponse):
            half = len(answer.body) // 2
            return HttpResponse(answer.status, answer.body, answer.content_type, cut_after=half)
        return _refusal(_fault_error(fault))

    def _discover(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a question about the API itself."""
        path = request.path.rstrip("/") or "/"
        if path in {"/api", "/apis"} and wants_aggregated(request.headers.get("accept", "")):
            body = msgspec.json.encode(discovery.aggregated(core=path == "/api"))
            return HttpResponse(200, body, content_type=discovery.AGGREGATED)
        if path == "/openapi/v2" and "protobuf" in request.headers.get("accept", ""):
            kind = discovery.OPENAPI_PROTOBUF
            return HttpResponse(200, discovery.openapi_v2_protobuf(), content_type=kind)
        fixed = {
            "/": discovery.root_paths,
            "/api": lambda: discovery.core_versions(request.headers.get("host", "")),
            "/apis": discovery.group_list,
            "/version": lambda: discovery.version(self.api.version),
            "/openapi/v2": discovery.openapi_v2,
            "/openapi/v3": discovery.openapi_index,
        }
        if path in fixed:
            return json_response(fixed[path]())
        steps = path.strip("/").split("/")
        found: Object | None = None
        if steps[:2] == ["openapi", "v3"]:
            found = discovery.openapi_v3("/".join(steps[2:]))
        elif steps[0] == "api" and len(steps) == 2:
            found = discovery.resource_list(steps[1])
        elif steps[0] == "apis" and len(steps) == 2:
            found = discovery.group(steps[1])
        elif steps[0] == "apis" and len(steps) == 3:
            found = discovery.resource_list("/".join(steps[1:]))
        elif steps[0] in {"api", "apis"}:
            return None
        if found is None:
            raise unknown_path()
        return json_response(found)

    def _perform(self, where: ApiRoute, request: HttpRequest) -> HttpResponse | Stream:
        """Carry out one verb, and count it if it wrote."""
        answer = self._carry_out(where, request)
        if where.verb not in READS:
            self.written[where.asked()] += 1
        return answer

    def _carry_out(self, where: ApiRoute, request: HttpRequest) -> HttpResponse | Stream:
        """The answer to one verb."""
        if where.target.subresource in {"binding", "eviction", "log", "scale"}:
            return self._perform_subresource(where, request)
        verbs = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_many,
        }
        return verbs[where.verb](where.target, request)

    def _get(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """One object."""
        text = request.query.get("resourceVersion") or "0"
        if read_revision(text) > self.store.revision:
            self.store.check_revision(target.resource.collection, read_revision(text))
        return self._present(target, request).one(self.api.get(target))

    def _list(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """A page of objects."""
        check_options(request.query, watch=False)
        selection = select(target.resource, target.namespace, request.query)
        page = list_page(self.store, target.resource, selection, request.query)
        return self._present(target, request).many(page)

    def _watch(self, target: ObjectRef, request: HttpRequest) -> HttpResponse | Stream:
        """A stream of changes."""
        check_options(request.query, watch=True)
        presentation = self._present(target, request)
        collection = target.resource.plural
        watching = WatchStream(
            self.store,
            target.resource,
            select(target.resource, target.namespace, request.query),
            WatchOptions.read(request.query),
            presentation.encoder(),
            lambda: self.faults.event_delay(collection),
        )
        try:
            watcher, first = watching.start()
        except ApiError as error:
            if error.code != 410 or self.faults.expired_as_status:
                raise
            return Stream(_one_line(encode_event("ERROR", msgspec.json.encode(error.status()))))
        self.watchers.add(watcher)
        return Stream(self._follow(watching, watcher, first))

    async def _follow(
        self, watching: WatchStream, watcher: HistoryReader, first: list[Any]
    ) -> AsyncIterator[bytes]:
        """The lines of a watch, which can be dropped as long as they last."""
        try:
            async for chunk in watching.lines(watcher, first):
                yield chunk
        finally:
            self.watchers.discard(watcher)

    def _create(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """A new object, a binding or the answer to a review."""
        body = _read_object(request)
        if target.resource.plural == "bindings":
            check_shape(target.resource, body)
            name = str((body.get("metadata") or {}).get("name") or "")
            pod = ObjectRef(self.answers.pods, target.namespace, name)
            bind(self.api, pod, body, dry_run=_is_dry(request.query))
            return json_response(SUCCESS, 201)
        if "list" not in target.resource.verbs:
            return json_response(self.answers.review(target.resource, body), 201)
        warnings = check_fields(target.resource, body, request.query)
        stored = read_body(target.resource, body)
        entry = self.api.create(target, stored, dry_run=_is_dry(request.query))
        return _warn(self._present(target, request).one(entry, 201), warnings)

    def _update(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """The object that took the place of another."""
        given = _read_object(request)
        warnings = check_fields(target.resource, given, request.query)
        body = read_body(target.resource, given)
        existed = self.store.get(target.resource.collection, target.key) is not None
        entry = self.api.replace(target, body, dry_run=_is_dry(request.query))
        return _warn(self._present(target, request).one(entry, 200 if existed else 201), warnings)

    def _patch(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """The object after a patch."""
        change = _read_patch(request)
        resource = target.resource
        warnings: list[str] = []

        def apply(item: Object) -> Any:
            changed = change(show(resource, item))
            warnings[:] = check_fields(resource, changed, request.query)
            return read_body(resource, changed)

        entry = self.api.patch(target, apply, dry_run=_is_dry(request.query))
        return _warn(self._present(target, request).one(entry), warnings)

    def _delete(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """What is left of a deleted object: itself, or a word about it."""
        options = DeleteOptions.read(_read_options(request), dict(request.query))
        deleted = delete(self.api, target, options)
        if not deleted.gone or target.resource.kind == "Pod":
            return self._present(target, request).one(deleted.entry)
        details: Object = {"name": target.name}
        if target.resource.group:
            details["group"] = target.resource.group
        details["kind"] = target.resource.plural
        details["uid"] = deleted.entry.object["metadata"]["uid"]
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return json_response({**status, "details": details})

    def _delete_many(self, target: ObjectRef, request: HttpRequest) -> HttpResponse:
        """The objects that were deleted."""
        options = DeleteOptions.read(_read_options(request), dict(request.query))
        selection = select(target.resource, target.namespace, request.query)
        entries = delete_many(self.api, target, selection, options)
        return self._present(target, request).some(entries, self.store.revision)

    def _perform_subresource(self, where: ApiRoute, request: HttpRequest) -> HttpResponse:
        """Carry out one verb on a subresource that is no status."""
        target = where.target
        if target.subresource == "log":
            text = (self.api.get(target).object["metadata"].get("annotations") or {}).get(
                LOG_ANNOTATION, ""
            )
            return HttpResponse(200, text.encode(), content_type=TEXT)
        if target.subresource == "scale":
            return self._scale(where, request)
        body = _read_object(request)
        if target.subresource == "binding":
            bind(self.api, target, body, dry_run=_is_dry(request.query))
        else:
            evict(self.api, target, body)
        return json_response(SUCCESS, 201)

    def _scale(self, where: ApiRoute, request: HttpRequest) -> HttpResponse:
        """The Scale of a workload, changed if asked."""
        entry = self.api.get(where.target)
        if where.verb == "patch":
            scale = _read_patch(request)(read_scale(entry))
            entry = write_scale(self.api, where.target, scale)
        elif where.verb == "update":
            entry = write_scale(self.api, where.target, _read_object(request))
        return json_response(read_scale(entry))

    def _present(self, target: ObjectRef, request: HttpRequest) -> ResponseView:
        """How the client wants its answer."""
        return ResponseView.read(target.resource, request, self.api.now())


def _read_object(request: HttpRequest) -> Object:
    """The JSON object in a body."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type == MEDIA_TYPE:
        return read_protobuf(bytes(request.body))
    if content_type not in BODIES:
        raise unsupported_media(content_type, ["application/json", MEDIA_TYPE])
    try:
        body = decode_json(request.body)
    except ValueError as error:
        raise bad_request(str(error)) from error
    if not isinstance(body, dict):
        raise bad_request(f"expected an object, got {type(body).__name__}")
    return body


def _read_options(request: HttpRequest) -> Any:
    """The DeleteOptions in a body, which may be empty."""
    return _read_object(request) if request.body else None


def _read_patch(request: HttpRequest) -> Any:
    """The change that a patch body asks for."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type not in PATCHES:
        raise unsupported_media(content_type, sorted(PATCHES))
    try:
        body = decode_json(request.body)
    except ValueError as error:
        raise bad_request(str(error)) from error
    return lambda item: PATCHES[content_type](item, body)


def _warn(answer: HttpResponse, warnings: list[str]) -> HttpResponse:
    """The answer with warnings, which kubectl prints."""
    if not warnings:
        return answer
    quoted = (text.replace('"', '\\"') for text in warnings)
    words = ", ".join(f'299 - "{text}"' for text in quoted)
    return replace(answer, headers={**answer.headers, "warning": words})


def _is_dry(query: Mapping[str, str]) -> bool:
    """Whether nothing is to be stored."""
    return query.get("dryRun") == "All"


def _refusal(error: ApiError) -> HttpResponse:
    """A refusal for the wire."""
    seconds = error.details.get("retryAfterSeconds")
    headers = {"retry-after": str(seconds)} if seconds is not None else {}
    return HttpResponse(error.code, msgspec.json.encode(error.status()), headers=headers)


def _fault_error(fault: InjectedFault) -> ApiError:
    """The refusal that a fault answers with."""
    reasons = {
        409: "Conflict",
        410: "Expired",
        429: "TooManyRequests",
        500: "InternalError",
        503: "ServiceUnavailable",
        504: "Timeout",
    }
    details = {} if fault.retry_after is None else {"retryAfterSeconds": fault.retry_after}
    reason = reasons.get(fault.code, "Unknown")
    return ApiError(fault.code, reason, "a fault was asked for", details=details)


async def _one_line(line: bytes) -> AsyncIterator[bytes]:
    """A stream of one line."""
    yield line
