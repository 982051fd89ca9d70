"""The pod of a manifest as a model value, and everything wrong with it that can be told at once.

Errors name the file, the object and the field.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.manifests import ManifestError, PodTemplate
from slicewise.explain.pod_query import refuse_misspelt
from slicewise.model import Container, Pod, Quantity, Role, SlicewiseError

Amounts = dict[str, str | int | float]
_PATH: Final = re.compile(r"(.*?) - at `(key in )?\$\.?([^`]*)`", re.DOTALL)


class PodMetadata(msgspec.Struct):
    name: str = ""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(msgspec.Struct):
    limits: Amounts | None = None
    requests: Amounts | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    priority: int | None = None


class ManifestPod(msgspec.Struct):
    """The fields of a pod in a manifest that have to do with GPUs."""

    metadata: PodMetadata
    spec: _PodSpec

    def read(self, name: str, namespace: str) -> Pod:
        """The pod under this name."""
        return Pod(
            uid=f"{namespace}/{name}",
            namespace=namespace,
            name=name,
            containers=tuple(_containers(self.spec)),
            labels=self.metadata.labels or {},
            annotations=self.metadata.annotations or {},
            priority=self.spec.priority or 0,
        )


def convert_pod(body: dict[str, Any], field: str = "") -> ManifestPod:
    """The pod of an object; errors name the field, which stands after `field` in its manifest."""
    try:
        return msgspec.convert(body, ManifestPod)
    except msgspec.ValidationError as error:
        raise ManifestError(_name_field(str(error), field)) from error


def check_template(template: PodTemplate, dialects: Dialects = DEFAULT) -> None:
    """Raise when the pod is none, asks for GPUs in a way no system has, or misspells a name."""
    try:
        pod = convert_pod(template.pod, template.field).read(template.name, "default")
        refuse_misspelt(pod, dialects)
        dialects.read_request(pod)
    except SlicewiseError as error:
        raise ManifestError(f"{template.where}: {error}") from error


def read_amounts(listed: Amounts | None) -> dict[str, Quantity]:
    """Amounts as written; YAML reads an unquoted 0.5 as a float, whose text is what was written."""
    return {
        key: str(value) if isinstance(value, float) else value
        for key, value in (listed or {}).items()
    }


def _containers(spec: _PodSpec) -> Iterator[Container]:
    for each in spec.init_containers or ():
        role = Role.SIDECAR if each.restart_policy == "Always" else Role.INIT
        yield _container(each, role)
    for each in spec.containers:
        yield _container(each, Role.MAIN)


def _container(listed: _Container, role: Role) -> Container:
    resources = listed.resources or _Resources()
    limits, requests = read_amounts(resources.limits), read_amounts(resources.requests)
    return Container(listed.name, limits, requests, role)


def _name_field(text: str, field: str) -> str:
    """`Expected ..., got ...` with the path of the field in front of it."""
    found = _PATH.fullmatch(text)
    what = text if found is None else found[1]
    path = "" if found is None else found[3].replace("[...]", ".*")
    return f"{field}{path or 'spec'}: {what[:1].lower()}{what[1:]}".replace("`", "")
