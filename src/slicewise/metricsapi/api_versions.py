"""What is served under which group: nvidia-gpu-scheduler's two releases, and our own reports.

The first release puts no metadata on its objects; the second speaks of custom resources. Our own
group stands beside them, so that what their users discover stays as it was.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from slicewise.metricsapi.documents import NodeDocument, NodeObject, PodDocument, PodStatus
from slicewise.metricsapi.registry import AgentHealth, HeldPod
from slicewise.reports import NodeReport
from slicewise.reports.gpu_documents import (
    NODE_LABEL,
    GpuPodSpec,
    find_gpus,
    name_gpu_pod,
    write_containers,
    write_node_spec,
    write_time,
)
from slicewise.reports.listing import GROUP, KIND, RESOURCE, VERSION

PODS: Final = "pods"
NODES: Final = "nodes"


@dataclass(frozen=True, slots=True)
class ServedResource:
    name: str
    singular: str
    kind: str
    subject: str
    """PODS or NODES."""
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of a group and how it spells its documents."""

    group: str
    version: str
    resources: tuple[ServedResource, ...]
    bare: bool
    """Whether objects have neither metadata nor a group, and lists are of kind `List`."""

    @property
    def name(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def prefix(self) -> str:
        return f"/apis/{self.name}"

    def find(self, name: str) -> ServedResource | None:
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
OWN: Final = ApiVersion(
    GROUP,
    VERSION,
    (ServedResource(RESOURCE, "nodereport", KIND, NODES, ("get", "list")),),
    bare=False,
)
RELEASES: Final = (FIRST, SECOND)
"""Where the scheduler's verbs are served."""
API_VERSIONS: Final = (FIRST, SECOND, OWN)


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
    api_version: ApiVersion
    namespace: str = ""
    """Where the second release's custom resources would be."""

    def write_raw(self, resource: ServedResource, item: ApiObject) -> PodDocument | NodeDocument:
        """The object exactly as the release wrote it."""
        document = self._write(item)
        if self.api_version.bare:
            document.kind, document.api_version = resource.kind, self.api_version.version
        else:
            document.metadata = self.write_metadata(item)
        return document

    def write_object(self, resource: ServedResource, item: ApiObject) -> PodDocument | NodeDocument:
        """The object as Kubernetes' own clients want it: with its group and metadata."""
        document = self._write(item)
        document.kind = resource.kind
        document.api_version = self.api_version.name
        document.metadata = self.write_metadata(item)
        return document

    def write_metadata(self, item: ApiObject) -> dict[str, Any]:
        space = {} if self.api_version.bare or not self.namespace else {"namespace": self.namespace}
        version = {"resourceVersion": str(item.revision)}
        if isinstance(item, PodObject):
            held = item.held
            created = {"creationTimestamp": write_time(held.changed)}
            label = {"labels": {NODE_LABEL: held.node}}
            return {"name": name_gpu_pod(held.pod), **space, **version, **created, **label}
        created = {} if item.created is None else {"creationTimestamp": write_time(item.created)}
        return {"name": item.name, **space, **version, **created}

    def _write(self, item: ApiObject) -> PodDocument | NodeDocument:
        return self._write_pod(item) if isinstance(item, PodObject) else self._write_node(item)

    def _write_pod(self, item: PodObject) -> PodDocument:
        held = item.held
        spec = GpuPodSpec(held.pod.name, held.pod.namespace)
        if item.gone is None:
            spec.containers_device = write_containers(held.pod, held.node, find_gpus(item.report))
        if not self.api_version.bare:
            spec.node_name = held.node
        return PodDocument(spec=spec, status=PodStatus(write_time(item.gone or held.changed)))

    def _write_node(self, view: NodeObject) -> NodeDocument:
        spec = write_node_spec(view.report, view.received)
        if self.api_version.bare:
            # The second release names the node in the metadata instead.
            spec.device_node = view.name
            heard = "UnKnow" if view.heard is None else write_time(view.heard)
            status = {"node_health": view.health.value, "node_last_health_time": heard}
            return NodeDocument(spec=spec, status=status)
        status = {"node": view.name, "health": view.health.value, "message": explain(view)}
        if view.heard is not None:
            status["last_health_time"] = write_time(view.heard)
        if view.since is not None:
            status["last_transition_time"] = write_time(view.since)
        return NodeDocument(spec=spec, status=status)


def explain(view: NodeObject) -> str:
    """Why a node is unhealthy, or that its agent is heard."""
    if view.health is AgentHealth.SILENT:
        return "the agent has fallen silent"
    if view.health is AgentHealth.UNKNOWN:
        return "the agent was never heard"
    return view.report.why or "the agent is heard"
