"""Plain Kubernetes objects, as YAML or JSON files, read as a cluster and the pods that arrive.

Controllers count as the pods they would make. An object that cannot be read is left out with a
note; kinds that have no part in placement are passed over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from slicewise.dialects import Dialects
from slicewise.explain.manifests import ManifestError, PodTemplate, parse_documents, read_template
from slicewise.model import (
    Container,
    Node,
    NodeNotice,
    Pod,
    Quantity,
    Role,
    SlicewiseError,
    TraceError,
)
from slicewise.sim.trace import Trace, TracePod

_MOST_REPLICAS: Final = 100_000
_CONTROLLERS: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"}
)

Amounts = dict[str, str | int | float]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(msgspec.Struct):
    limits: Amounts | None = None
    requests: Amounts | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    priority: int | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec


class _NodeStatus(msgspec.Struct):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


@dataclass(slots=True)
class _Reading:
    """What has been read so far, and what was left out."""

    dialects: Dialects
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[tuple[str, str], TracePod] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, source: str, document: Mapping[str, Any]) -> None:
        kind = document.get("kind")
        where = f"{source}: {kind} {_name(document)}"
        try:
            if kind == "Node":
                self._take_node(msgspec.convert(document, _Node))
            elif kind == "Pod":
                bare = msgspec.convert(document, _Pod)
                self._take_pod(bare.metadata, bare.spec)
            elif kind in _CONTROLLERS:
                self._take_template(read_template(source, document))
        except (SlicewiseError, msgspec.ValidationError) as error:
            self.notes.append(f"{where} is left out: {error}")

    def _take_node(self, listed: _Node) -> None:
        if listed.metadata.name in self.nodes:
            raise TraceError("it is listed twice")
        self.nodes[listed.metadata.name] = self.dialects.read_node(
            NodeNotice(
                name=listed.metadata.name,
                labels=listed.metadata.labels or {},
                annotations=listed.metadata.annotations or {},
                capacity=_amounts(listed.status.capacity),
                allocatable=_amounts(listed.status.allocatable or listed.status.capacity),
            )
        )

    def _take_template(self, template: PodTemplate) -> None:
        if not 0 <= template.total <= _MOST_REPLICAS:
            raise TraceError(f"replicas={template.total}: expected 0 to {_MOST_REPLICAS}")
        body = msgspec.convert(template.pod, _Pod)
        for at in range(template.total):
            metadata = _Metadata(
                name=f"{template.name}-{at}",
                namespace=template.namespace,
                labels=body.metadata.labels,
                annotations=body.metadata.annotations,
            )
            self._take_pod(metadata, body.spec)

    def _take_pod(self, metadata: _Metadata, spec: _PodSpec) -> None:
        namespace = metadata.namespace or "default"
        key = (namespace, metadata.name)
        if not metadata.name or key in self.pods:
            raise TraceError(f"pod {namespace}/{metadata.name}: expected a name of its own")
        pod = Pod(
            uid=f"{namespace}/{metadata.name}",
            namespace=namespace,
            name=metadata.name,
            containers=tuple(_containers(spec)),
            labels=metadata.labels or {},
            annotations=metadata.annotations or {},
            priority=spec.priority or 0,
        )
        request = self.dialects.read_request(pod)
        self.pods[key] = TracePod(metadata.name, request, namespace, pod.priority)


def read_manifests(paths: Iterable[Path], dialects: Dialects, name: str = "") -> Trace:
    files = list(paths)
    reading = _Reading(dialects)
    for path in files:
        for document in _read_documents(path):
            reading.take(path.name, document)
    if not reading.nodes:
        raise TraceError(f"{', '.join(str(path) for path in files)}: expected at least one Node")
    return Trace(
        name or files[0].stem,
        tuple(reading.nodes[each] for each in sorted(reading.nodes)),
        tuple(reading.pods[key] for key in sorted(reading.pods)),
        tuple(reading.notes),
    )


def _read_documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        yield from parse_documents(str(path), path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TraceError(f"cannot read {path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    except ManifestError as error:
        raise TraceError(str(error)) from error


def _containers(spec: _PodSpec) -> Iterator[Container]:
    for each in spec.init_containers or ():
        role = Role.SIDECAR if each.restart_policy == "Always" else Role.INIT
        yield _container(each, role)
    for each in spec.containers:
        yield _container(each, Role.MAIN)


def _container(listed: _Container, role: Role) -> Container:
    resources = listed.resources
    return Container(listed.name, _amounts(resources.limits), _amounts(resources.requests), role)


def _amounts(listed: Amounts | None) -> dict[str, Quantity]:
    # YAML reads an unquoted 0.5 as a float; its shortest text is what was written.
    return {
        key: str(value) if isinstance(value, float) else value
        for key, value in (listed or {}).items()
    }


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else "without a name"
