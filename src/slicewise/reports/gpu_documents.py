"""nvidia-gpu-scheduler's documents of a node and of a pod, from a report and back.

Its API serves them and its custom resources carry them. Empty texts are left out everywhere;
lists and objects are left out only where it says so here. What it does not tell of a GPU, such as
its memory, is not known to whoever reads them.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from slicewise.reports.report import (
    ContainerReport,
    DeviceReport,
    GpuReport,
    NodeReport,
    PodReport,
    name_brand,
    number_brand,
)

NODE_LABEL: Final = "nvidia-gpu-scheduler.node"
_NAME_LIMIT: Final = 253


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


class GpuPodSpec(msgspec.Struct, omit_defaults=True):
    """Whose GPUs; a deleted pod has no list of containers."""

    pod_name: str = ""
    pod_namespace: str = ""
    node_name: str = ""
    containers_device: list[ContainerDevices] | UnsetType = UNSET


class GpuNodeSpec(msgspec.Struct):
    """A node's GPUs, by UUID and by model, and those that are held."""

    device_node: str | UnsetType = UNSET
    device_infos: dict[str, DeviceInfo] = msgspec.field(default_factory=dict)
    device_models: dict[str, list[str]] = msgspec.field(default_factory=dict)
    report_time: str = ""
    device_busy: list[str] = msgspec.field(default_factory=list)


def write_node_spec(report: NodeReport, received: datetime | None) -> GpuNodeSpec:
    """The node's GPUs; whoever names the node among them adds that."""
    known = find_gpus(report)
    models: dict[str, list[str]] = {}
    for uuid in sorted(known):
        # Pods name a model trimmed and in lower case.
        models.setdefault(known[uuid].model.strip().lower(), []).append(uuid)
    return GpuNodeSpec(
        device_infos={uuid: write_gpu(known[uuid], report.node) for uuid in sorted(known)},
        device_models=dict(sorted(models.items())),
        report_time="" if received is None else write_exact_time(received),
        device_busy=sorted(uuid for uuid in report.busy if uuid in known or not known),
    )


def write_pod_spec(pod: PodReport, report: NodeReport) -> GpuPodSpec:
    """The pod with every container, and each of a container's GPUs once."""
    return GpuPodSpec(
        pod.name, pod.namespace, report.node, write_containers(pod, report.node, find_gpus(report))
    )


def write_containers(
    pod: PodReport, node: str, gpus: Mapping[str, GpuReport]
) -> list[ContainerDevices]:
    """Every container of a pod with each of its GPUs once."""
    return [_write_container(each, gpus, node) for each in pod.containers]


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


def write_gpu(gpu: GpuReport, node: str) -> DeviceInfo:
    return DeviceInfo(gpu.uuid, name_brand(gpu.brand), gpu.model, gpu.bus, node)


def read_gpus(infos: Mapping[str, DeviceInfo]) -> tuple[GpuReport, ...]:
    """The GPUs of a node in the order of their UUIDs, which stands for their index."""
    return tuple(
        GpuReport(
            uuid=uuid,
            model=found.device_model,
            bus=found.device_busid,
            brand=number_brand(found.device_brand),
            index=index,
        )
        for index, (uuid, found) in enumerate(sorted(infos.items()))
    )


def read_pod_spec(spec: GpuPodSpec) -> PodReport:
    containers = tuple(
        ContainerReport(
            name=each.container_name,
            devices=tuple(DeviceReport(gpu=info.device_id) for info in each.device_info),
        )
        for each in spec.containers_device or ()
    )
    return PodReport(namespace=spec.pod_namespace, name=spec.pod_name, containers=containers)


def name_gpu_pod(pod: PodReport) -> str:
    """A name for a pod's object that no other pod has, whatever dashes their names have."""
    plain = f"{pod.namespace}-{pod.name}"
    suffix = hashlib.sha256(pod.key.encode()).hexdigest()[:10]
    return f"{plain[: _NAME_LIMIT - len(suffix) - 1].rstrip('-.')}-{suffix}"


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


def _zone(text: str) -> str:
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
