"""nvidia-gpu-scheduler's documents, in its order of fields and with its omissions.

Empty texts are left out everywhere; lists and objects are left out only where it says so here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from slicewise.metricsapi.registry import AgentHealth, HeldPod, NodeRecord, NodeRegistry
from slicewise.reports import ContainerReport, GpuReport, NodeReport, name_brand

NODE_LABEL: Final = "nvidia-gpu-scheduler.node"
_NAME_LIMIT: Final = 253


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node that no later event alters."""

    name: str
    report: NodeReport
    health: AgentHealth
    heard: datetime | None
    created: datetime | None
    received: datetime | None
    since: datetime | None
    revision: int


def make_node_object(registry: NodeRegistry, record: NodeRecord) -> NodeObject:
    return NodeObject(
        record.name,
        record.report,
        record.health,
        registry.last_heard(record),
        record.created,
        record.received,
        record.since,
        record.revision,
    )


class DeviceInfo(msgspec.Struct, omit_defaults=True):
    """One GPU, as every document of this product describes it."""

    device_id: str = ""
    device_brand: str = ""
    device_model: str = ""
    device_busid: str = ""
    device_node: str = ""


class ContainerDevices(msgspec.Struct, omit_defaults=True):
    """A container's GPUs; one that holds only other devices has no list of them."""

    container_name: str = ""
    device_info: list[DeviceInfo] = msgspec.field(default_factory=list)


class PodSpec(msgspec.Struct, omit_defaults=True):
    """Whose GPUs; a deleted pod has no list of containers."""

    pod_name: str = ""
    pod_namespace: str = ""
    node_name: str = ""
    containers_device: list[ContainerDevices] | UnsetType = UNSET


class PodStatus(msgspec.Struct, omit_defaults=True):
    last_changed_time: str = ""


class PodDocument(msgspec.Struct, omit_defaults=True, rename={"api_version": "apiVersion"}):
    """A PodResource or GpuPod."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] | UnsetType = UNSET
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(msgspec.Struct):
    """A node's GPUs, by UUID and by model, and those that are held."""

    device_node: str | UnsetType
    device_infos: dict[str, DeviceInfo]
    device_models: dict[str, list[str]]
    report_time: str
    device_busy: list[str]


class NodeDocument(msgspec.Struct, omit_defaults=True, rename={"api_version": "apiVersion"}):
    """A GpuInfo or GpuNode."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] | UnsetType = UNSET
    spec: NodeSpec | None = None
    status: dict[str, str] = msgspec.field(default_factory=dict)


def write_gpu(gpu: GpuReport, node: str) -> DeviceInfo:
    return DeviceInfo(gpu.uuid, name_brand(gpu.brand), gpu.model, gpu.bus, node)


def write_containers(held: HeldPod, report: NodeReport) -> list[ContainerDevices]:
    """Every container of a pod with each of its GPUs once."""
    gpus = find_gpus(report)
    return [_write_container(each, gpus, held.node) for each in held.pod.containers]


def write_node_spec(view: NodeObject, *, named: bool) -> NodeSpec:
    """The node's GPUs; the second release names the node in the metadata instead."""
    known = find_gpus(view.report)
    models: dict[str, list[str]] = {}
    for uuid in sorted(known):
        # Pods name a model trimmed and in lower case.
        models.setdefault(known[uuid].model.strip().lower(), []).append(uuid)
    return NodeSpec(
        device_node=view.name if named else UNSET,
        device_infos={uuid: write_gpu(known[uuid], view.report.node) for uuid in sorted(known)},
        device_models=dict(sorted(models.items())),
        report_time="" if view.received is None else write_exact_time(view.received),
        device_busy=sorted(uuid for uuid in view.report.busy if uuid in known or not known),
    )


def unique_name(held: HeldPod) -> str:
    """A name for a pod's object that no other pod has, whatever dashes their names have."""
    plain = f"{held.pod.namespace}-{held.pod.name}"
    suffix = hashlib.sha256(held.pod.key.encode()).hexdigest()[:10]
    return f"{plain[: _NAME_LIMIT - len(suffix) - 1].rstrip('-.')}-{suffix}"


def _write_container(
    container: ContainerReport, gpus: Mapping[str, GpuReport], node: str
) -> ContainerDevices:
    infos: dict[str, DeviceInfo] = {}
    for device in container.devices:
        gpu = gpus.get(device.gpu)
        # A GPU that the inventory has not is better shown by its id than left out.
        infos[device.gpu] = (
            DeviceInfo(device.gpu, device_node=node) if gpu is None else write_gpu(gpu, node)
        )
    return ContainerDevices(container.name, list(infos.values()))


def find_gpus(report: NodeReport) -> dict[str, GpuReport]:
    """The node's GPUs by UUID."""
    return {gpu.uuid: gpu for gpu in report.gpus}


def write_time(moment: datetime) -> str:
    """RFC 3339 to the second, as Go writes it."""
    return _zone(moment.isoformat(timespec="seconds"))


def write_exact_time(moment: datetime) -> str:
    """RFC 3339 with as much of a fraction as there is, as Go writes it."""
    text = moment.isoformat(timespec="microseconds")
    head, zone = text[:26].rstrip("0").rstrip("."), text[26:]
    return _zone(head + zone)


def write_age(then: datetime | None, now: datetime) -> str:
    """How long ago, in the one or two units that kubectl shows."""
    if then is None:
        return "<unknown>"
    seconds = max(0, int((now - then).total_seconds()))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def _zone(text: str) -> str:
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
