"""What the API says about itself: versions, groups, resources and OpenAPI.

kubectl asks OpenAPI whether the server checks fields by itself, which each patch operation says,
and what fields a kind has, for `kubectl explain`. Of the older form it needs a document that it
can read, and finds the rest in the newer one.
"""

from collections.abc import Mapping, Sequence

from slicewise_playground.api.writes import VERSION
from slicewise_playground.objects.resources import RESOURCES, ApiResource, Object, groups
from slicewise_playground.objects.schemas import write_schemas

OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "log": ("", "v1", "Pod", ("get",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
}


def version(text: str) -> Object:
    """The answer at /version."""
    major, minor = text.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{text}+playground",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def core_versions(address: str) -> Object:
    """The answer at /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list() -> Object:
    """The answer at /apis."""
    names = [name for name in groups() if "/" in name]
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name) for name in names],
    }


def group(name: str) -> Object | None:
    """The answer at /apis/<group>."""
    matches = [key for key in groups() if key.partition("/")[0] == name and "/" in key]
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(matches[0])} if matches else None


def resource_list(group_version: str) -> Object | None:
    """The answer at /api/v1 and /apis/<group>/<version>."""
    rows = groups().get(group_version)
    if rows is None:
        return None
    found: list[Object] = []
    for row in rows:
        found.append(_listed(row))
        found.extend(_listed_subresource(row, name) for name in row.subresources)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": found,
    }


def aggregated(*, core: bool) -> Object:
    """All of discovery in one answer, for /api or for /apis."""
    items: list[Object] = []
    for group_version, rows in groups().items():
        if ("/" not in group_version) != core:
            continue
        entry: Object = {
            "version": rows[0].version,
            "freshness": "Current",
            "resources": [_aggregated_resource(row) for row in rows],
        }
        metadata = {"name": rows[0].group} if rows[0].group else {}
        items.append({"metadata": metadata, "versions": [entry]})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def openapi_index() -> Object:
    """The answer at /openapi/v3."""
    paths = {
        _prefix(name): {"serverRelativeURL": f"/openapi/v3/{_prefix(name)}"} for name in groups()
    }
    return {"paths": paths}


def openapi_v3(prefix: str) -> Object | None:
    """The OpenAPI document of one group and version."""
    for name, rows in groups().items():
        if _prefix(name) == prefix:
            paths = {path: item for row in rows for path, item in _openapi_paths(name, row).items()}
            return {
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": VERSION},
                "paths": paths,
                "components": {"schemas": write_schemas(rows, "#/components/schemas/")},
            }
    return None


def openapi_v2() -> Object:
    """The answer at /openapi/v2 in JSON."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": {},
        "definitions": write_schemas(RESOURCES, "#/definitions/"),
    }


def openapi_v2_protobuf() -> bytes:
    """The answer at /openapi/v2 that kubectl asks for: its version and title, and no more."""
    info = _field(1, b"Kubernetes") + _field(2, VERSION.encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that holds fewer than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def _openapi_paths(group_version: str, row: ApiResource) -> Mapping[str, Object]:
    """The path of one resource, with the operations kubectl looks for."""
    scope = "namespaces/{namespace}/" if row.namespaced else ""
    path = f"/{_prefix(group_version)}/{scope}{row.plural}/{{name}}"
    kind = {"group": row.group, "version": row.version, "kind": row.kind}
    patch = {
        "x-kubernetes-group-version-kind": kind,
        "x-kubernetes-action": "patch",
        "parameters": [FIELD_VALIDATION],
        "responses": {"200": {"description": "OK"}},
    }
    return {path: {"patch": patch}}


def _prefix(group_version: str) -> str:
    """The first steps of the path of a group and version."""
    return f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"


def _group(group_version: str) -> Object:
    """One group."""
    name, _, number = group_version.partition("/")
    entry = {"groupVersion": group_version, "version": number}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def _listed(row: ApiResource) -> Object:
    """One resource of an APIResourceList."""
    found: Object = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    return {**found, **_names(row)}


def _names(row: ApiResource) -> Object:
    """The short names and categories that a resource has."""
    names: Mapping[str, Sequence[str]] = {
        "shortNames": row.short_names,
        "categories": row.categories,
    }
    return {key: list(value) for key, value in names.items() if value}


def _listed_subresource(row: ApiResource, name: str) -> Object:
    """One subresource of an APIResourceList."""
    found, verbs = _subresource_kind(row, name)
    return {
        "name": f"{row.plural}/{name}",
        "singularName": "",
        "namespaced": row.namespaced,
        **found,
        "verbs": list(verbs),
    }


def _subresource_kind(row: ApiResource, name: str) -> tuple[Object, tuple[str, ...]]:
    """The kind that a subresource speaks, and its verbs."""
    if name not in SUBRESOURCE_KINDS:
        return {"kind": row.kind}, ("get", "patch", "update")
    group_name, number, kind, verbs = SUBRESOURCE_KINDS[name]
    if (group_name, number) == (row.group, row.version):
        return {"kind": kind}, verbs
    return {"group": group_name, "version": number, "kind": kind}, verbs


def _aggregated_resource(row: ApiResource) -> Object:
    """One resource of an APIGroupDiscoveryList."""
    own = {"group": "", "version": "", "kind": row.kind}
    found: Object = {
        "resource": row.plural,
        "responseKind": own,
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
        **_names(row),
    }
    if row.subresources:
        found["subresources"] = []
        for name in row.subresources:
            kind, verbs = _subresource_kind(row, name)
            part = {"subresource": name, "responseKind": {**own, **kind}, "verbs": list(verbs)}
            found["subresources"].append(part)
    return found


PATHS = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]


def root_paths() -> Object:
    """The answer at /."""
    paths = [*PATHS, *(f"/{_prefix(name)}" for name in groups(RESOURCES))]
    return {"paths": sorted(paths)}
