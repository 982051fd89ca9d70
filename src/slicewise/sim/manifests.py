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
from slicewise.explain.manifest_pods import (
    Amounts,
    ManifestPod,
    PodMetadata,
    convert_pod,
    read_amounts,
)
from slicewise.explain.manifests import ManifestError, PodTemplate, parse_documents, read_template
from slicewise.explain.pod_query import refuse_misspelt
from slicewise.model import Node, NodeNotice, SlicewiseError, TraceError
from slicewise.sim.trace import Trace, TracePod

_MOST_REPLICAS: Final = 100_000
_CONTROLLERS: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"}
)


class _NodeStatus(msgspec.Struct):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None


class _Node(msgspec.Struct):
    metadata: PodMetadata
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
                bare = convert_pod(dict(document))
                self._take_pod(bare, bare.metadata.name, bare.metadata.namespace)
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
                capacity=read_amounts(listed.status.capacity),
                allocatable=read_amounts(listed.status.allocatable or listed.status.capacity),
            )
        )

    def _take_template(self, template: PodTemplate) -> None:
        if not 0 <= template.total <= _MOST_REPLICAS:
            raise TraceError(f"replicas={template.total}: expected 0 to {_MOST_REPLICAS}")
        body = convert_pod(template.pod, template.field)
        for at in range(template.total):
            self._take_pod(body, f"{template.name}-{at}", template.namespace)

    def _take_pod(self, body: ManifestPod, name: str, space: str | None) -> None:
        namespace = space or "default"
        key = (namespace, name)
        if not name or key in self.pods:
            raise TraceError(f"pod {namespace}/{name}: expected a name of its own")
        pod = body.read(name, namespace)
        refuse_misspelt(pod, self.dialects)
        request = self.dialects.read_request(pod)
        self.pods[key] = TracePod(name, request, namespace, pod.priority)


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


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else "without a name"
