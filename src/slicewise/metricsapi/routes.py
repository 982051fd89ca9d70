"""Which path does what, and who must be known and allowed for it.

Paths are exact, as the original's are; what is not served is answered with its 404.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from slicewise.httpd import Answer, Handler, HttpRequest, HttpResponse, Router, Stream
from slicewise.httpd.router import POST, BodyRule
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
from slicewise.metricsapi.documents import make_node_object
from slicewise.metricsapi.formats import (
    TABLE,
    ResponseFormat,
    SelectorError,
    choose_format,
    read_selector,
)
from slicewise.metricsapi.node_reports import list_reports, read_report
from slicewise.metricsapi.registry import NodeRegistry
from slicewise.metricsapi.status import NOT_FOUND, answer_list, refuse
from slicewise.metricsapi.watch_stream import WatchRequest, choose_seconds, stream_watch
from slicewise.reports import PATH
from slicewise.reports.listing import RESOURCE

SCHEDULE: Final = "schedule"
_VERBS: Final = ("filter", "prioritize", "preempt")
_YES: Final = ("1", "true")
_GET: Final = ("GET",)
# The pods or GPUs of one node, and what a scheduler says of 5,000 nodes.
_NODE_BYTES: Final = 4 << 20
_CLUSTER_BYTES: Final = 128 << 20


class MetricsRoutes:
    def __init__(
        self,
        registry: NodeRegistry,
        broadcaster: Broadcaster,
        auth: RequestAuth,
        rules: AgentRules,
        *,
        namespace: str = "",
    ) -> None:
        self._registry = registry
        self._broadcaster = broadcaster
        self._auth = auth
        self._writers = {each: DocumentWriter(each, namespace) for each in RELEASES}
        self._writers[OWN] = DocumentWriter(OWN)
        self._router = Router(not_found=NOT_FOUND, wrong_method=HttpResponse(405, b""))
        self._add_agents(AgentRoutes(registry, auth, rules))
        self._add_discovery()
        for each in RELEASES:
            for resource in each.resources:
                path = f"{each.prefix}/{resource.name}"
                self._router.add(path, partial(self._list, each, resource), _GET)
        reports = f"{OWN.prefix}/{RESOURCE}"
        self._router.add(reports, self._list_reports, _GET)
        self._router.add(f"{reports}/{{name}}", self._read_report, _GET)

    def serve_scheduler(self, handler: Handler) -> None:
        for each in RELEASES:
            for verb in _VERBS:
                path = f"{each.prefix}/{SCHEDULE}/{verb}"
                may = partial(self._refuse_scheduler, each, verb)
                self._router.add(path, handler, POST, body=BodyRule(_CLUSTER_BYTES, may, json=True))

    async def handle(self, request: HttpRequest) -> Answer:
        try:
            return await self._router.handle(request)
        except KubeError as error:
            return _cannot_ask(error)

    async def admit(self, head: HttpRequest) -> HttpResponse | int:
        """Whoever may not do what they ask for is refused before their body is read."""
        try:
            return await self._router.admit(head)
        except KubeError as error:
            return _cannot_ask(error)

    def _add_agents(self, agents: AgentRoutes) -> None:
        self._router.add(HEALTH, agents.heartbeat, _GET)
        rule = BodyRule(_NODE_BYTES, agents.refuse)
        self._router.add(INVENTORY, agents.take_inventory, POST, body=rule)
        self._router.add(HOLDINGS, agents.take_holdings, POST, body=rule)
        self._router.add(PATH, agents.connect, _GET)

    def _add_discovery(self) -> None:
        self._router.add("/apis", partial(self._discover, write_groups), _GET)
        for each in API_VERSIONS:
            group, resources = write_group(each), write_resources(each)
            self._router.add(f"/apis/{each.group}", partial(self._discover, _always(group)), _GET)
            self._router.add(each.prefix, partial(self._discover, _always(resources)), _GET)

    async def _discover(
        self, write: Callable[[HttpRequest], HttpResponse], request: HttpRequest
    ) -> Answer:
        """What every authenticated caller may see."""
        if await self._auth.identify(request) is None:
            return refuse(401, "Unauthorized")
        return write(request)

    async def _list(
        self, api_version: ApiVersion, resource: ServedResource, request: HttpRequest
    ) -> Answer:
        form = choose_format(request, self._writers[api_version], resource, self._registry.now)
        watching = is_watch(request, form)
        verb = "watch" if watching else "list"
        refusal = await self._check(request, api_version, verb, resource.name)
        return refusal or self._answer(request, form, watching=watching)

    async def _refuse_scheduler(
        self, api_version: ApiVersion, verb: str, head: HttpRequest
    ) -> HttpResponse | None:
        return await self._check(head, api_version, "create", SCHEDULE, verb)

    async def _list_reports(self, request: HttpRequest) -> Answer:
        if request.query.get("watch", "") in _YES:
            return refuse(405, f"{RESOURCE} cannot be watched: list them with ?since=")
        refusal = await self._check(request, OWN, "list", RESOURCE)
        if refusal is not None:
            return refusal
        (resource,) = OWN.resources
        form = choose_format(request, self._writers[OWN], resource, self._registry.now)
        if form.name == TABLE:
            return self._answer(request, form, watching=False)
        return list_reports(self._registry, request.query.get("since", ""))

    async def _read_report(self, request: HttpRequest) -> Answer:
        name = request.parameters["name"]
        refusal = await self._check(request, OWN, "get", RESOURCE, name)
        return refusal or read_report(self._registry, name)

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
        group, version = api_version.group, api_version.version
        attributes = ResourceAttributes(
            verb=verb, group=group, version=version, resource=resource, name=name
        )
        if await self._auth.permits(user, attributes):
            return None
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
        return answer_list(form.write_frame(self._registry.revision), facts, form.write_item)

    def _watch(
        self, request: HttpRequest, form: ResponseFormat, wanted: Callable[[ApiObject], bool]
    ) -> Answer:
        query, subject = request.query, form.resource.subject
        version = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents", "") in _YES

        def start() -> tuple[Iterable[ObjectEvent], int]:
            revision = self._registry.revision
            if form.kubernetes and version not in ("", "0") and not initial:
                after = int(version) if version.isdecimal() else -1
                return self._broadcaster.since(subject, after), revision
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
            records = self._registry.records
            return [
                PodObject(held, records[held.node].report, held.revision)
                for held in self._registry.pods()
            ]
        return [make_node_object(self._registry, record) for record in self._registry.nodes()]


def _cannot_ask(error: KubeError) -> HttpResponse:
    return refuse(503, f"the API server cannot be asked: {error}")


def _always(answer: HttpResponse) -> Callable[[HttpRequest], HttpResponse]:
    return lambda _: answer


def is_watch(request: HttpRequest, form: ResponseFormat) -> bool:
    """Whether this is a watch: the original takes `true` alone, and for what it can watch."""
    given = request.query.get("watch", "")
    if form.kubernetes:
        return given in _YES
    return given == "true" and "watch" in form.resource.verbs
