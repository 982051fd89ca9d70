"""nvidia-gpu-scheduler v0.2.0's custom resources and Leases, read by every replica.

They say of a node what its own connection would, later and less; a node that is connected is
taken at its word. The replica that holds a lease of its own writes the nodes' health.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import structlog

from slicewise.kube.client import Client
from slicewise.kube.custom.node_leases import LEASE_NAMESPACE, SeenLease, node_leases
from slicewise.kube.custom.objects import CustomBody, CustomObjects, gpu_nodes, gpu_pods
from slicewise.kube.errors import KubeError
from slicewise.kube.leading.lease import Election
from slicewise.kube.watch import Informer, Seen, WatchEvent
from slicewise.metricsapi.api_versions import explain
from slicewise.metricsapi.documents import make_node_object
from slicewise.metricsapi.registry import AgentHealth, NodeRegistry
from slicewise.reports import NodeReport, PodReport
from slicewise.reports.gpu_documents import (
    NODE_LABEL,
    GpuNodeSpec,
    GpuPodSpec,
    find_gpus,
    read_gpus,
    read_pod_spec,
    write_time,
)

_log = structlog.get_logger(__name__)
Spec = TypeVar("Spec", GpuNodeSpec, GpuPodSpec)
MANAGER: Final = "nvidia-gpu-scheduler"
CONTROLLER: Final = "gpunode-lifecycle-controller"
GRACE_SECONDS: Final = 4.0
"""How long after the last renewal that was seen a node counts as healthy."""
_LOOK_SECONDS: Final = 0.25


class CustomResourceReader:
    """Tells the registry what the objects say of nodes that have no connection."""

    def __init__(self, registry: NodeRegistry) -> None:
        self.gpu_nodes: dict[str, CustomBody] = {}
        """The GpuNodes that are there, by the names of their nodes."""
        self._registry = registry
        self._specs: dict[str, GpuNodeSpec] = {}
        self._pods: dict[str, dict[str, PodReport]] = {}
        self._homes: dict[str, str] = {}
        self._renewed: dict[str, str] = {}

    def take_nodes(self, changes: Sequence[WatchEvent[CustomBody]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                name = change.value.metadata.name
                self.gpu_nodes[name] = change.value
                self._specs[name] = _convert(change.value, GpuNodeSpec)
                self._tell(name)
            else:
                self.gpu_nodes.pop(change.key, None)
                self._specs.pop(change.key, None)
                record = self._registry.records.get(change.key)
                if record is not None and record.session is None:
                    self._registry.forget(change.key)

    def take_pods(self, changes: Sequence[WatchEvent[CustomBody]]) -> None:
        touched = set()
        for change in changes:
            name = change.value.metadata.name if isinstance(change, Seen) else change.key
            before = self._homes.pop(name, None)
            if before is not None:
                self._pods[before].pop(name, None)
                touched.add(before)
            if isinstance(change, Seen):
                spec = _convert(change.value, GpuPodSpec)
                node = spec.node_name or (change.value.metadata.labels or {}).get(NODE_LABEL, "")
                self._homes[name] = node
                self._pods.setdefault(node, {})[name] = read_pod_spec(spec)
                touched.add(node)
        for node in sorted(touched):
            self._tell(node)

    def take_leases(self, changes: Sequence[WatchEvent[SeenLease]]) -> None:
        for change in changes:
            if not isinstance(change, Seen):
                self._renewed.pop(change.key, None)
            elif change.value.node != CONTROLLER:
                self._take_lease(change.value)

    def _take_lease(self, lease: SeenLease) -> None:
        before = self._renewed.get(lease.node)
        self._renewed[lease.node] = lease.renewed
        if before is None:
            # When it was renewed is a time of another machine's clock: only a change is news.
            self._registry.expect(lease.node, GRACE_SECONDS)
        elif before != lease.renewed:
            self._registry.heartbeat(lease.node, GRACE_SECONDS)

    def _tell(self, node: str) -> None:
        spec = self._specs.get(node)
        record = self._registry.records.get(node)
        if spec is None or (record is not None and record.session is not None):
            return
        known = self._registry.report(node)
        gpus, pods = find_gpus(known), {pod.key: pod for pod in known.pods}
        told = self._pods.get(node, {}).values()
        report = NodeReport(
            node=node,
            gpus=tuple(gpus.get(gpu.uuid, gpu) for gpu in read_gpus(spec.device_infos)),
            pods=tuple(_prefer(pods.get(pod.key), pod) for pod in told),
            driver=known.driver,
        )
        if report != known or record is None or record.created is None:
            self._registry.tell(report)


@dataclass(slots=True)
class StatusWriter:
    """Writes the health of nodes into their GpuNodes, while this replica leads."""

    reader: CustomResourceReader
    registry: NodeRegistry
    objects: CustomObjects
    leading: Callable[[], bool]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _problems: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            if self.leading():
                await self.write()
            await self.sleep(_LOOK_SECONDS)

    async def write(self) -> None:
        """Have every GpuNode say whether its node lives, where that is known."""
        for name, body in list(self.reader.gpu_nodes.items()):
            status = self._describe(name)
            if status is None or all(
                body.status.get(key) == status[key] for key in ("node", "health", "message")
            ):
                continue
            try:
                self.reader.gpu_nodes[name] = await self.objects.patch_status(name, status)
                self._problems.pop(name, None)
            except KubeError as error:
                if self._problems.get(name) != str(error):
                    self._problems[name] = str(error)
                    _log.warning("health not written", node=name, error=str(error))

    def _describe(self, name: str) -> Mapping[str, str] | None:
        record = self.registry.records.get(name)
        if record is None or record.health is AgentHealth.UNKNOWN:
            return None
        view = make_node_object(self.registry, record)
        status = {"node": name, "health": view.health.value, "message": explain(view)}
        for key, moment in (("last_health_time", view.heard), ("last_transition_time", view.since)):
            if moment is not None:
                status[key] = write_time(moment)
        return status


class CustomResources:
    """Everything that has to do with them, built together."""

    def __init__(
        self, client: Client, namespace: str, registry: NodeRegistry, identity: str
    ) -> None:
        nodes = gpu_nodes(client, namespace, manager=MANAGER)
        pods = gpu_pods(client, namespace, manager=MANAGER)
        self.reader = reader = CustomResourceReader(registry)
        self.election = Election(client, (LEASE_NAMESPACE, CONTROLLER), identity)
        self.writer = StatusWriter(reader, registry, nodes, lambda: self.election.leading)
        self.informers: tuple[Informer[Any, Any], ...] = (
            Informer(client, nodes.source(), reader.take_nodes),
            Informer(client, pods.source(), reader.take_pods),
            Informer(client, node_leases(), reader.take_leases),
        )


def _convert(body: CustomBody, kind: type[Spec]) -> Spec:
    """What the object says; whatever it says otherwise is left out."""
    try:
        return msgspec.convert(body.spec, kind)
    except msgspec.ValidationError as error:
        _log.warning("object not understood", name=body.metadata.name, error=str(error))
        return kind()


def _prefer(known: PodReport | None, told: PodReport) -> PodReport:
    """What its own connection said of the pod, where that is still so."""

    def devices(pod: PodReport) -> list[tuple[str, set[str]]]:
        return [(each.name, {device.gpu for device in each.devices}) for each in pod.containers]

    return told if known is None or devices(known) != devices(told) else known
