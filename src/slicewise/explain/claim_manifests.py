"""Converts manifests that ask for GPUs by resource names into ones that ask by ResourceClaim.

What a pod asks for is read by its dialect, so every system's manifests convert alike. What a
claim cannot say is an error that names it, never left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.manifest_pods import convert_pod
from slicewise.explain.manifests import ManifestError, read_template
from slicewise.model import Constraints, ContainerRequest, Nearness, Request, Share, SlicewiseError
from slicewise.model.claim import DRIVER

Document = dict[str, Any]
_API: Final = "resource.k8s.io/v1"
_ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'
_CLAIM: Final = "gpu"
_NEAR: Final = {
    Nearness.NVLINK: f"{DRIVER}/nvlinkGroup",
    Nearness.NUMA: f"{DRIVER}/numa",
}


def convert_manifest(
    name: str, document: Mapping[str, Any], dialects: Dialects = DEFAULT
) -> Iterator[Document]:
    """The template of its claim and the object with that claim; the object alone without GPUs."""
    template = read_template(name, document)
    try:
        pod = convert_pod(template.pod, template.field).read(template.name, "default")
        request = dialects.read_request(pod)
        if not request.containers:
            yield dict(document)
            return
        title = f"{template.name}-{_CLAIM}"
        made = _write_template(title, template.namespace, request)
    except SlicewiseError as error:
        raise ManifestError(f"{template.where}: {error}") from error
    yield made
    names = {each.name: _name_requests(each) for each in request.containers}
    amounts = dialects.pod_amounts - {"cpu", "memory"}

    def convert(body: Document) -> Document:
        kept = _drop_annotations(body, dialects)
        return _convert_pod(kept, title, names, amounts)

    path = tuple(part for part in template.field.split(".") if part)
    yield _rewrite(document, path, convert)


def write_device_class() -> Document:
    """The class that every claim names; a cluster has it once."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [selector]},
    }


def _write_template(title: str, namespace: str | None, request: Request) -> Document:
    requests = [part for each in request.containers for part in _write_requests(each, request)]
    names = [part["name"] for part in requests]
    devices: Document = {"requests": requests}
    constraints = [
        *(_part(each) for each in request.containers if len(_name_requests(each)) > 1),
        *_join(request, names),
        *_keep_near(request.constraints, names),
    ]
    if constraints:
        devices["constraints"] = constraints
    meta = {"name": title, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": meta,
        "spec": {"spec": {"devices": devices}},
    }


def _count_shares(container: ContainerRequest) -> dict[Share, int]:
    """How many of each share the container asks for, in the order of its shares."""
    groups: dict[Share, int] = {}
    for share in container.shares:
        groups[share] = groups.get(share, 0) + 1
    return groups


def _name_requests(container: ContainerRequest) -> list[str]:
    """One request for equal shares: the devices of one request are always different GPUs."""
    count = len(_count_shares(container))
    return [container.name] if count == 1 else [f"{container.name}-{at}" for at in range(count)]


def _write_requests(container: ContainerRequest, request: Request) -> Iterator[Document]:
    groups = _count_shares(container).items()
    for name, (share, count) in zip(_name_requests(container), groups, strict=True):
        exactly: Document = {"deviceClassName": DRIVER}
        if not share.whole:
            # A share of no memory is not published; the smallest is one MiB.
            amounts = {"cores": str(share.cores), "memory": f"{max(1, share.memory)}Mi"}
            exactly["capacity"] = {"requests": amounts}
        if count > 1:
            exactly["count"] = count
        selectors = list(_select(request.constraints))
        if selectors:
            exactly["selectors"] = selectors
        yield {"name": name, "exactly": exactly}


def _part(container: ContainerRequest) -> Document:
    """Unequal shares of one container are on different GPUs as well."""
    return {"distinctAttribute": f"{DRIVER}/uuid", "requests": _name_requests(container)}


def _select(constraints: Constraints) -> Iterator[Document]:
    model = f"{_ATTRIBUTES}.productName.lowerAscii()"
    parts = (
        (constraints.models, lambda word: f'{model}.contains("{word.lower()}")', ""),
        (constraints.models_refused, lambda word: f'{model}.contains("{word.lower()}")', "!"),
        (constraints.uuids, lambda word: f'{_ATTRIBUTES}.uuid == "{word}"', ""),
        (constraints.uuids_refused, lambda word: f'{_ATTRIBUTES}.uuid == "{word}"', "!"),
    )
    for words, write, mark in parts:
        for word in words:
            if '"' in word or "\\" in word:
                raise ManifestError(f"{word!r}: expected no quotation mark in a model or UUID")
        if words:
            yield {"cel": {"expression": f"{mark}({' || '.join(map(write, words))})"}}


def _join(request: Request, names: Sequence[str]) -> Iterator[Document]:
    """Containers that are to share their GPUs."""
    if not request.constraints.together or len(request.containers) == 1:
        return
    if any(len(each.shares) > 1 for each in request.containers):
        raise ManifestError("containers on the same several GPUs: a claim can demand one GPU alone")
    yield {"matchAttribute": f"{DRIVER}/uuid", "requests": list(names)}


def _keep_near(constraints: Constraints, names: Sequence[str]) -> Iterator[Document]:
    near = constraints.topology
    if near is None or not near.strict:
        return
    attribute = _NEAR.get(near.nearness)
    if attribute is None:
        raise ManifestError(f"topology {near.nearness.name.lower()}: a claim cannot demand it")
    yield {"matchAttribute": attribute, "requests": list(names)}


def _drop_annotations(body: Document, dialects: Dialects) -> Document:
    """The pod without what is said about shares that it no longer asks for by name."""
    meta = dict(body.get("metadata") or {})
    before = meta.pop("annotations", None) or {}
    kept = {
        key: value
        for key, value in before.items()
        if key not in dialects.pod_keys and not key.startswith(dialects.pod_key_prefixes)
    }
    return {**body, "metadata": {**meta, **({"annotations": kept} if kept else {})}}


def _convert_pod(
    body: Document, title: str, names: Mapping[str, Sequence[str]], read: frozenset[str]
) -> Document:
    spec = dict(body["spec"])
    claims = [*spec.get("resourceClaims", ()), {"name": _CLAIM, "resourceClaimTemplateName": title}]
    for key in ("initContainers", "containers"):
        if key in spec:
            spec[key] = [_convert_container(each, names, read) for each in spec[key]]
    return {**body, "spec": {**spec, "resourceClaims": claims}}


def _convert_container(
    container: Document, names: Mapping[str, Sequence[str]], read: frozenset[str]
) -> Document:
    """The container without the resources that a dialect read, and with its requests instead."""
    before = container.get("resources") or {}
    resources = {key: value for key, value in before.items() if key not in ("limits", "requests")}
    for key in ("limits", "requests"):
        amounts = {name: value for name, value in before.get(key, {}).items() if name not in read}
        if amounts:
            resources[key] = amounts
    wanted = names.get(container["name"], ())
    if wanted:
        uses = [{"name": _CLAIM, "request": each} for each in wanted]
        resources["claims"] = [*resources.get("claims", ()), *uses]
    others = {key: value for key, value in container.items() if key != "resources"}
    return {**others, **({"resources": resources} if resources else {})}


def _rewrite(
    document: Mapping[str, Any], path: tuple[str, ...], change: Callable[[Document], Document]
) -> Document:
    """The object with the pod inside it changed, and everything else as it was."""
    if not path:
        return change(dict(document))
    return {**document, path[0]: _rewrite(document[path[0]], path[1:], change)}
