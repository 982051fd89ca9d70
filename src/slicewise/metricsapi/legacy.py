"""The calls of nvidia-gpu-scheduler's own agents, so that old agents may report to this server.

Their deletions come as an empty full set beside one deleted pod, which the original took for the
loss of every pod of the node; here a message with deletions deletes those and nothing else.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from slicewise.metricsapi.registry import NodeRegistry
from slicewise.reports import ContainerReport, DeviceReport, PodReport
from slicewise.reports.gpu_documents import DeviceInfo, read_gpus

GPU: Final = "nvidia.com/gpu"
_SHARED_PREFIX: Final = "nvidia.com/gpu."


class Inventory(msgspec.Struct):
    """`POST /hostgpuinfo`."""

    device_node: str = ""
    device_infos: dict[str, DeviceInfo] | None = None


class Devices(msgspec.Struct):
    resource_name: str = ""
    device_ids: list[str] | None = None


class OldContainer(msgspec.Struct):
    """A container as the kubelet listed it."""

    name: str = ""
    devices: list[Devices] | None = None


class OldContainerDevices(msgspec.Struct):
    """A container's GPUs as the agent looked them up."""

    container_name: str = ""
    device_info: list[DeviceInfo] | None = None


class OldPod(msgspec.Struct):
    """A pod as the agent sends it."""

    name: str = ""
    namespace: str = ""
    containers: list[OldContainer] | None = None
    containers_device: list[OldContainerDevices] | None = None


class Holdings(
    msgspec.Struct,
    rename={"sync": "PodResourcesSYNC", "gone": "PodResourcesDEL", "node": "NodeName"},
):
    """`POST /podresources`."""

    sync: list[OldPod] | None = None
    gone: list[OldPod] | None = None
    node: str = ""


Message = TypeVar("Message", Inventory, Holdings)


def take_inventory(registry: NodeRegistry, message: Inventory) -> None:
    known = registry.report(message.device_node)
    gpus = read_gpus(message.device_infos or {})
    registry.tell(msgspec.structs.replace(known, gpus=gpus))


def take_holdings(registry: NodeRegistry, message: Holdings) -> None:
    """The node's pods are these, or some of them are gone."""
    known = registry.report(message.node)
    told = {pod.key: pod for pod in map(_read_pod, message.sync or ())}
    gone = {f"{pod.namespace}/{pod.name}" for pod in message.gone or ()}
    kept = {pod.key: pod for pod in known.pods if pod.key not in gone} if gone else {}
    pods = kept | told
    registry.tell(msgspec.structs.replace(known, pods=tuple(pods[key] for key in sorted(pods))))


def _read_pod(pod: OldPod) -> PodReport:
    shown = {each.container_name: each.device_info or [] for each in pod.containers_device or ()}
    containers = []
    for container in pod.containers or ():
        ids = [
            each
            for devices in container.devices or ()
            if is_gpu(devices.resource_name)
            for each in devices.device_ids or ()
        ]
        # Old agents look up the first GPU alone, and list the ids of all.
        ids += [info.device_id for info in shown.get(container.name, ())]
        devices = tuple(
            DeviceReport(gpu=gpu, id="" if plain == gpu else plain)
            for gpu, plain in _by_gpu(ids).items()
        )
        containers.append(ContainerReport(name=container.name, devices=devices))
    return PodReport(namespace=pod.namespace, name=pod.name, containers=tuple(containers))


def is_gpu(resource: str) -> bool:
    """Whether a resource is a GPU of NVIDIA's, whole or shared by its device plugin."""
    return resource == GPU or resource.startswith(_SHARED_PREFIX)


def _by_gpu(ids: list[str]) -> Mapping[str, str]:
    """The first device id of each GPU by its UUID; a replica's id ends in `::` and a number."""
    found: dict[str, str] = {}
    for each in ids:
        found.setdefault(each.partition("::")[0], each)
    return found


def decode_message(body: bytes | bytearray, kind: type[Message]) -> Message:
    """The message, or an empty one; the original answers 200 to what it cannot read."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        return kind()
