"""From a method and a path to a verb and its target."""

from collections.abc import Mapping
from dataclasses import dataclass

from slicewise_playground.api.faults import FaultTarget
from slicewise_playground.api.lists import read_flag
from slicewise_playground.api.writes import ObjectRef
from slicewise_playground.objects.errors import method_not_allowed, unknown_path
from slicewise_playground.objects.resources import BY_PATH, find

COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
CREATED_SUBRESOURCES = frozenset({"binding", "eviction"})
NAMESPACES = find("namespaces")


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """What a request wants done to what."""

    verb: str
    target: ObjectRef

    def asked(self) -> FaultTarget:
        """The route as faults see it."""
        resource = self.target.resource.plural
        if self.target.subresource:
            resource = f"{resource}/{self.target.subresource}"
        return FaultTarget(self.verb, resource, self.target.namespace, self.target.name)


def route(method: str, path: str, query: Mapping[str, str]) -> ApiRoute:
    """The verb and target of a request; 404 and 405 when there is none."""
    target = _target(path)
    verb = _verb(method, target, query)
    allowed = target.resource.verbs
    if not target.subresource and verb not in allowed:
        raise method_not_allowed()
    return ApiRoute(verb, target)


def _target(path: str) -> ObjectRef:
    """The target that a path names."""
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"] and len(steps) > 2:
        group, version, rest = "", steps[1], steps[2:]
    elif steps[:1] == ["apis"] and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        raise unknown_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise unknown_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise unknown_path()
    if name and resource.namespaced and not namespace:
        raise unknown_path()
    return ObjectRef(resource, namespace, name, subresource)


def _verb(method: str, target: ObjectRef, query: Mapping[str, str]) -> str:
    """The Kubernetes verb of a request."""
    if target.subresource in CREATED_SUBRESOURCES:
        if method != "POST":
            raise method_not_allowed()
        return "create"
    if target.name:
        if method not in OBJECT_VERBS or (target.subresource and method == "DELETE"):
            raise method_not_allowed()
        return OBJECT_VERBS[method]
    if method not in COLLECTION_VERBS:
        raise method_not_allowed()
    everywhere = target.resource.namespaced and not target.namespace
    if everywhere and method in {"POST", "DELETE"}:
        raise method_not_allowed()
    if method == "GET" and read_flag(query, "watch"):
        return "watch"
    return COLLECTION_VERBS[method]
