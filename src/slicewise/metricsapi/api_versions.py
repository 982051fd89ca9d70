"""The two releases of nvidia-gpu-scheduler: their groups, resources and raw documents.

The first puts no metadata on its objects; the second speaks of custom resources.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from slicewise.metricsapi.documents import (
    NODE_LABEL,
    NodeDocument,
    PodDocument,
    name_pod,
    unique_name,
    write_node_spec,
    write_pod_spec,
    write_pod_status,
)
from slicewise.metricsapi.objects import NodeObject, write_time
from slicewise.metricsapi.registry import AgentHealth, HeldPod
from slicewise.reports import NodeReport

PODS: Final = "pods"
NODES: Final = "nodes"


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One resource of a group."""

    name: str
    singular: str
    kind: str
    subject: str
    """PODS or NODES."""
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One release's group and how it spells its documents."""

    group: str
    version: str
    resources: tuple[ServedResource, ...]
    bare: bool
    """Whether objects have neither metadata nor a group, and lists are of kind `List`."""

    @property
    def prefix(self) -> str:
        """Where the group is served."""
        return f"/apis/{self.group}/{self.version}"

    def find(self, name: str) -> ServedResource | None:
        """The resource of this name."""
        return next((each for each in self.resources if each.name == name), None)


FIRST: Final = ApiVersion(
    "metrics.nvidia.com",
    "v1alpha1",
    (
        ServedResource("podresources", "podresource", "PodResource", PODS, ("list", "watch")),
        ServedResource("gpuinfos", "gpuinfo", "GpuInfo", NODES, ("list",)),
    ),
    bare=True,
)
SECOND: Final = ApiVersion(
    "nvidia-gpu-scheduler",
    "v1",
    (
        ServedResource("gpupods", "gpupod", "GpuPod", PODS, ("list", "watch")),
        ServedResource("gpunodes", "gpunode", "GpuNode", NODES, ("list", "watch")),
    ),
    bare=False,
)
API_VERSIONS: Final = (FIRST, SECOND)


@dataclass(frozen=True, slots=True)
class PodObject:
    """A pod, and the report of its node at that moment."""

    held: HeldPod
    report: NodeReport
    revision: int
    gone: datetime | None = None
    """When it was deleted; None while it is there."""


ApiObject = PodObject | NodeObject


@dataclass(frozen=True, slots=True)
class DocumentWriter:
    """Writes facts as a release's objects."""

    profile: ApiVersion
    namespace: str = ""
    """Where the second release's custom resources would be."""

    def write_raw(self, resource: ServedResource, fact: ApiObject) -> PodDocument | NodeDocument:
        """The object exactly as the release wrote it."""
        document = self._write(fact)
        if self.profile.bare:
            document.kind, document.api_version = resource.kind, self.profile.version
        else:
            document.metadata = self.write_metadata(fact)
        return document

    def write_object(self, resource: ServedResource, fact: ApiObject) -> PodDocument | NodeDocument:
        """The object as Kubernetes' own clients want it: with its group and metadata."""
        document = self._write(fact)
        document.kind = resource.kind
        document.api_version = f"{self.profile.group}/{self.profile.version}"
        document.metadata = self.write_metadata(fact)
        return document

    def write_metadata(self, fact: ApiObject) -> dict[str, Any]:
        """Name, version and labels of an object."""
        space = {} if self.profile.bare or not self.namespace else {"namespace": self.namespace}
        version = {"resourceVersion": str(fact.revision)}
        if isinstance(fact, PodObject):
            held = fact.held
            created = {"creationTimestamp": write_time(held.changed)}
            label = {"labels": {NODE_LABEL: held.node}}
            return {"name": unique_name(held), **space, **version, **created, **label}
        created = {} if fact.created is None else {"creationTimestamp": write_time(fact.created)}
        return {"name": fact.name, **space, **version, **created}

    def _write(self, fact: ApiObject) -> PodDocument | NodeDocument:
        if isinstance(fact, PodObject):
            return self._write_pod(fact)
        return self._write_node(fact)

    def _write_pod(self, fact: PodObject) -> PodDocument:
        if fact.gone is not None:
            spec, moment = name_pod(fact.held), fact.gone
        else:
            spec, moment = write_pod_spec(fact.held, fact.report), fact.held.changed
        if not self.profile.bare:
            spec.node_name = fact.held.node
        return PodDocument(spec=spec, status=write_pod_status(moment))

    def _write_node(self, view: NodeObject) -> NodeDocument:
        spec = write_node_spec(view, named=self.profile.bare)
        if self.profile.bare:
            heard = "UnKnow" if view.heard is None else write_time(view.heard)
            status = {"node_health": view.health.value, "node_last_health_time": heard}
            return NodeDocument(spec=spec, status=status)
        status = {"node": view.name, "health": view.health.value, "message": explain(view)}
        if view.heard is not None:
            status["last_health_time"] = write_time(view.heard)
        if view.since is not None:
            status["last_transition_time"] = write_time(view.since)
        return NodeDocument(spec=spec, status=status)


def write_raw_frame(profile: ApiVersion) -> tuple[bytes, bytes]:
    """What stands before and after the items of a list, as the release wrote it."""
    head = (
        b'{"kind":"List","apiVersion":"v1","items":['
        if profile.bare
        else b'{"metadata":{},"items":['
    )
    return head, b"]}\n"


def write_raw_event(writer: DocumentWriter, resource: ServedResource, fact: ApiObject) -> bytes:
    """A line of a watch exactly as the release wrote it."""
    document = writer.write_raw(resource, fact)
    gone = isinstance(fact, PodObject) and fact.gone is not None
    kind = "DELETED" if gone or is_forgotten(fact) else "SYNCED"
    if writer.profile.bare:
        return msgspec.json.encode({"Type": kind, "Object": document}) + b"\n"
    return msgspec.json.encode({resource.kind: document, "Type": kind}) + b"\n"


def is_forgotten(fact: ApiObject) -> bool:
    """Whether a node's view is the last there will be of it."""
    return isinstance(fact, NodeObject) and fact.forgotten


def explain(view: NodeObject) -> str:
    """Why a node is not well, or that its agent is heard."""
    if view.health is AgentHealth.SILENT:
        return "the agent has fallen silent"
    if view.health is AgentHealth.UNKNOWN:
        return "the agent was never heard"
    return view.report.why or "the agent is heard"
