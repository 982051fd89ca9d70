"""Which path does what, and who must be known and allowed for it.

Paths are exact, as the original's are; what is not served is answered with its 404.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from slicewise.httpd import Answer, Handler, HttpRequest, HttpResponse, Stream
from slicewise.kube.access_reviews import ResourceAttributes
from slicewise.kube.errors import KubeError
from slicewise.metricsapi.agents import HEALTH, HOLDINGS, INVENTORY, AgentRoutes, AgentRules
from slicewise.metricsapi.api_versions import (
    API_VERSIONS,
    OWN,
    PODS,
    RELEASES,
    ApiObject,
    ApiVersion,
    DocumentWriter,
    PodObject,
    ServedResource,
)
from slicewise.metricsapi.auth import RequestAuth
from slicewise.metricsapi.broadcaster import Broadcaster, ObjectEvent
from slicewise.metricsapi.discovery import write_group, write_groups, write_resources
from slicewise.metricsapi.formats import TABLE, ResponseFormat, choose_format
from slicewise.metricsapi.node_reports import list_reports, read_report
from slicewise.metricsapi.objects import make_node_object
from slicewise.metricsapi.registry import NodeRegistry
from slicewise.metricsapi.selectors import SelectorError, read_selector
from slicewise.metricsapi.status import NOT_FOUND, refuse
from slicewise.metricsapi.watch_stream import (
    PART,
    WatchRequest,
    choose_seconds,
    stream_list,
    stream_watch,
)
from slicewise.reports import PATH

Route = Callable[[HttpRequest], Awaitable[Answer]]
SCHEDULE: Final = "schedule"
_VERBS: Final = ("filter", "prioritize", "preempt")
_YES: Final = ("1", "true")


class MetricsRoutes:
    """Every path of the service."""

    def __init__(
        self,
        registry: NodeRegistry,
        broadcaster: Broadcaster,
        auth: RequestAuth,
        rules: AgentRules,
        *,
        namespace: str = "",
    ) -> None:
        """Serve the registry; the scheduler's verbs go to `scheduler`, once there is one."""
        self.scheduler: Handler | None = None
        self._registry = registry
        self._broadcaster = broadcaster
        self._auth = auth
        agents = AgentRoutes(registry, auth, rules)
        self._writers = {each: DocumentWriter(each, namespace) for each in RELEASES}
        self._writers[OWN] = DocumentWriter(OWN)
        self._open: Mapping[tuple[str, str], Route] = {
            ("GET", HEALTH): agents.beat,
            ("POST", INVENTORY): agents.take_inventory,
            ("POST", HOLDINGS): agents.take_holdings,
            ("GET", PATH): agents.connect,
        }
        self._known = {path for _, path in self._open}

    async def handle(self, request: HttpRequest) -> Answer:
        """The answer to any request."""
        try:
            return await self._route(request)
        except KubeError as error:
            return refuse(503, f"the API server cannot be asked: {error}")

    async def _route(self, request: HttpRequest) -> Answer:
        path = request.path
        if path in self._known:
            route = self._open.get((request.method, path))
            return HttpResponse(405, b"") if route is None else await route(request)
        if path == "/apis":
            return await self._discover(request, lambda: write_groups(request))
        for api_version in API_VERSIONS:
            if path == f"/apis/{api_version.group}":
                return await self._discover(request, lambda: write_group(api_version))  # noqa: B023
            if path == api_version.prefix:
                return await self._discover(request, lambda: write_resources(api_version))  # noqa: B023
            if path.startswith(f"{OWN.prefix}/"):
                return await self._serve_reports(request, path[len(OWN.prefix) + 1 :])
            if path.startswith(f"{api_version.prefix}/"):
                return await self._serve(request, api_version, path[len(api_version.prefix) + 1 :])
        return NOT_FOUND

    async def _discover(self, request: HttpRequest, write: Callable[[], HttpResponse]) -> Answer:
        """What everybody who is known may see."""
        if await self._auth.identify(request) is None:
            return refuse(401, "Unauthorized")
        return write() if request.method == "GET" else HttpResponse(405, b"")

    async def _serve(self, request: HttpRequest, api_version: ApiVersion, rest: str) -> Answer:
        resource = api_version.find(rest)
        if resource is not None:
            if request.method != "GET":
                return HttpResponse(405, b"")
            form = choose_format(request, self._writers[api_version], resource, self._registry.now)
            watching = is_watch(request, form)
            refusal = await self._check(request, api_version, "watch" if watching else "list", rest)
            return refusal or self._answer(request, form, watching=watching)
        head, _, verb = rest.partition("/")
        serves = head == SCHEDULE and verb in _VERBS and api_version in RELEASES
        if serves and self.scheduler is not None:
            if request.method != "POST":
                return HttpResponse(405, b"")
            refusal = await self._check(request, api_version, "create", SCHEDULE, verb)
            return refusal or await self.scheduler(request)
        return NOT_FOUND

    async def _serve_reports(self, request: HttpRequest, rest: str) -> Answer:
        """Whole reports: of all nodes, of those that changed, or of one."""
        (resource,) = OWN.resources
        kind, slash, name = rest.partition("/")
        if kind != resource.name or "/" in name or bool(slash) != bool(name):
            return NOT_FOUND
        if request.method != "GET" or request.query.get("watch", "") in _YES:
            return refuse(405, f"{kind} can be listed and read, not watched or changed")
        refusal = await self._check(request, OWN, "get" if name else "list", kind, name)
        if refusal is not None:
            return refusal
        if name:
            return read_report(self._registry, name)
        form = choose_format(request, self._writers[OWN], resource, self._registry.now)
        if form.name == TABLE:
            return self._answer(request, form, watching=False)
        return list_reports(self._registry, request.query.get("since", ""))

    async def _check(
        self,
        request: HttpRequest,
        api_version: ApiVersion,
        verb: str,
        resource: str,
        name: str = "",
    ) -> HttpResponse | None:
        """Why the caller may not do this; None when it may."""
        user = await self._auth.identify(request)
        if user is None:
            return refuse(401, "Unauthorized")
        attributes = ResourceAttributes(
            verb=verb,
            group=api_version.group,
            version=api_version.version,
            resource=resource,
            name=name,
        )
        if await self._auth.permits(user, attributes):
            return None
        group = api_version.group
        words = f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{group}"'
        return refuse(403, f"{resource}.{group} is forbidden: {words} at the cluster scope")

    def _answer(self, request: HttpRequest, form: ResponseFormat, *, watching: bool) -> Answer:
        try:
            wanted = read_selector(request.query if form.kubernetes else {}, form.writer)
        except SelectorError as error:
            return refuse(400, str(error))
        if watching:
            return self._watch(request, form, wanted)
        facts = [item for item in self._facts(form.resource) if wanted(item)]
        revision = self._registry.revision
        if len(facts) > PART:
            return Stream(stream_list(form, facts, revision))
        head, tail = form.write_frame(revision)
        return HttpResponse(200, head + b",".join(map(form.write_item, facts)) + tail)

    def _watch(
        self, request: HttpRequest, form: ResponseFormat, wanted: Callable[[ApiObject], bool]
    ) -> Answer:
        query, subject = request.query, form.resource.subject
        version = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents", "") in _YES

        def start() -> tuple[Iterable[ObjectEvent], int]:
            revision = self._registry.revision
            if form.kubernetes and version not in ("", "0") and not initial:
                missed = self._broadcaster.since(
                    subject, int(version) if version.isdecimal() else -1
                )
                return missed, revision
            facts = self._facts(form.resource)
            return (ObjectEvent(item.revision, "ADDED", item) for item in facts), revision

        watcher = self._broadcaster.make_watcher()
        watch = WatchRequest(
            form=form,
            wanted=wanted,
            start=start,
            seconds=choose_seconds(query, kubernetes=form.kubernetes),
            bookmark=initial,
        )
        return Stream(stream_watch(self._broadcaster, watcher, watch), cut=watcher.overrun)

    def _facts(self, resource: ServedResource) -> list[ApiObject]:
        if resource.subject == PODS:
            node_records = self._registry.node_records
            return [
                PodObject(held, node_records[held.node].report, held.revision)
                for held in self._registry.pods()
            ]
        return [
            make_node_object(self._registry, node_record) for node_record in self._registry.nodes()
        ]


def is_watch(request: HttpRequest, form: ResponseFormat) -> bool:
    """Whether this is a watch: the original takes `true` alone, and for what it can watch."""
    given = request.query.get("watch", "")
    if form.kubernetes:
        return given in _YES
    return given == "true" and "watch" in form.resource.verbs
