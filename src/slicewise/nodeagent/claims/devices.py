"""The node's GPUs as devices that claims are allocated from."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from slicewise.dialects.shared.publication import NodeFacts
from slicewise.kube.dra.slices import Attribute, DeviceTaint, SliceDevice
from slicewise.kubelet.dra_messages import HEALTHY, UNHEALTHY, DeviceHealth, DeviceIdentifier
from slicewise.model import Gpu, Links, Node
from slicewise.model.claim import ENGINE_TAINT
from slicewise.model.grants import PodGrants
from slicewise.nvml.driver import GpuDevice, Hardware

UNHEALTHY_TAINT: Final = "slicewise.io/unhealthy"
CORDONED_TAINT: Final = "slicewise.io/cordoned"
# Both are limits of the API server.
_LONGEST_TEXT: Final = 64
_LONGEST_LABEL: Final = 63
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9]+")
_BUS: Final = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FAR: Final = 1 << 30


def list_devices(
    hardware: Hardware, facts: NodeFacts, *, evict: bool = False
) -> tuple[SliceDevice, ...]:
    """Every GPU but those split by MIG, near ones side by side, for claims take the first.

    With `evict`, Kubernetes deletes pods from GPUs that are unhealthy.
    """
    groups = _group_by_nvlink(facts.node)
    devices = sorted(
        (each for each in hardware.gpus if not each.gpu.mig),
        key=lambda each: (
            _FAR if each.gpu.numa is None else each.gpu.numa,
            each.pcie_root,
            each.gpu.index,
        ),
    )
    return tuple(
        SliceDevice(
            each.gpu.device,
            each.gpu.memory,
            _describe(each, hardware, groups),
            tuple(_taint(each.gpu, facts, evict=evict)),
        )
        for each in devices
    )


def share_devices(
    devices: Sequence[SliceDevice], node: Node, pods: Iterable[PodGrants]
) -> tuple[SliceDevice, ...]:
    """The devices less what pods hold by resource names, each bound only once we grant it.

    What claims hold is not subtracted: the scheduler does that.
    """
    held: dict[str, tuple[int, int]] = {}
    names = {gpu.index: gpu.device for gpu in node.gpus}
    for pod in pods:
        for piece in pod.claimed:
            name = names.get(piece.gpu, "")
            cores, memory = held.get(name, (0, 0))
            held[name] = cores + piece.cores, memory + piece.memory
    return tuple(replace(each, taken=held.get(each.name, (0, 0)), judged=True) for each in devices)


def close_devices(devices: Sequence[SliceDevice]) -> tuple[SliceDevice, ...]:
    """The devices with a taint that keeps schedulers from allocating them."""
    taint = DeviceTaint(ENGINE_TAINT)
    return tuple(replace(each, taints=(*each.taints, taint)) for each in devices)


def list_health(
    node: str, gpus: Sequence[Gpu], troubles: Mapping[str, str], now: int
) -> tuple[DeviceHealth, ...]:
    """The health of every device, as the kubelet shows it in the status of pods."""
    return tuple(
        DeviceHealth(
            DeviceIdentifier(node, gpu.device),
            HEALTHY if gpu.healthy else UNHEALTHY,
            now,
            message="" if gpu.healthy else troubles.get(gpu.uuid, "unhealthy"),
        )
        for gpu in gpus
        if not gpu.mig
    )


def read_version(text: str) -> tuple[int, int, int] | None:
    """A version of up to three numbers as the API server takes it: 580.95.05 is 580.95.5."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        return None
    first, second, third = (*map(int, parts), 0, 0)[:3]
    return first, second, third


def _describe(
    device: GpuDevice, hardware: Hardware, groups: Mapping[int, str]
) -> dict[str, Attribute]:
    gpu = device.gpu
    found: dict[str, Attribute | None] = {
        "uuid": gpu.uuid,
        "productName": gpu.model[:_LONGEST_TEXT],
        "index": gpu.index,
        "minor": gpu.minor,
        "numa": gpu.numa,
        "cudaComputeCapability": (device.capability // 10, device.capability % 10, 0)
        if device.capability
        else None,
        "driverVersion": read_version(hardware.driver),
        "cudaDriverVersion": read_version(hardware.cuda),
        "nvlinkGroup": groups.get(gpu.index),
        "isolation": str(gpu.isolation.best),
        "resource.kubernetes.io/pcieRoot": device.pcie_root,
        "resource.kubernetes.io/pciBusID": _read_bus(device.bus),
    }
    return {key: value for key, value in found.items() if value is not None and value != ""}


def _read_bus(bus: str) -> str | None:
    """The PCI address as Kubernetes writes it: NVML's domain has eight digits, this one four."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if _BUS.fullmatch(rest) else None


def _taint(gpu: Gpu, facts: NodeFacts, *, evict: bool) -> Iterator[DeviceTaint]:
    if not gpu.healthy:
        reason = _NO_LABEL.sub("-", facts.troubles.get(gpu.uuid, ""))[:_LONGEST_LABEL].strip("-")
        yield DeviceTaint(UNHEALTHY_TAINT, reason, "NoExecute" if evict else "NoSchedule")
    if any(each.cordoned for each in facts.node.gpus if each.uuid == gpu.uuid):
        yield DeviceTaint(CORDONED_TAINT)


def _group_by_nvlink(node: Node) -> dict[int, str]:
    """One name for all GPUs that reach each other by NVLink; none for a GPU that reaches nobody."""
    if node.links is None:
        return {}
    groups: dict[int, str] = {}
    for at, gpu in enumerate(node.gpus):
        if gpu.index in groups:
            continue
        reached = _reach(at, node.links)
        if len(reached) > 1:
            first = node.gpus[min(reached)].index
            groups |= {node.gpus[each].index: f"nvlink-{first}" for each in reached}
    return groups


def _reach(start: int, links: Links) -> set[int]:
    reached, new = {start}, [start]
    while new:
        row = links.nvlinks[new.pop()]
        found = {at for at, lanes in enumerate(row) if lanes and at not in reached}
        reached |= found
        new += found
    return reached
