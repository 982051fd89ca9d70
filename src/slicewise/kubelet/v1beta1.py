"""The messages of the device plugin API v1beta1, and the exact size of its largest one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from slicewise.kubelet.codec import delimited, encode, many, number, one, pairs, text, texts, truth

VERSION: Final = "v1beta1"
REGISTRATION: Final = "v1beta1.Registration"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
# What the kubelet's client accepts, which is gRPC's own default.
MESSAGE_LIMIT: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    pre_start_required: bool = truth(1)
    preferred_allocation: bool = truth(2)


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    version: str = text(1)
    endpoint: str = text(2)
    resource: str = text(3)
    options: Options | None = one(4, Options)


@dataclass(frozen=True, slots=True)
class NumaNode:
    id: int = number(1)


@dataclass(frozen=True, slots=True)
class Topology:
    """The NUMA nodes a device is near."""

    nodes: tuple[NumaNode, ...] = many(1, NumaNode)


@dataclass(frozen=True, slots=True)
class Device:
    id: str = text(1)
    health: str = text(2)
    topology: Topology | None = one(3, Topology)


@dataclass(frozen=True, slots=True)
class Devices:
    devices: tuple[Device, ...] = many(1, Device)


@dataclass(frozen=True, slots=True)
class ContainerAllocateRequest:
    ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True, slots=True)
class AllocateRequest:
    """The units of the containers of one call; the kubelet sends one."""

    containers: tuple[ContainerAllocateRequest, ...] = many(1, ContainerAllocateRequest)


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str = text(1)
    host_path: str = text(2)
    read_only: bool = truth(3)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    container_path: str = text(1)
    host_path: str = text(2)
    permissions: str = text(3)


@dataclass(frozen=True, slots=True)
class CdiDevice:
    name: str = text(1)


@dataclass(frozen=True, slots=True)
class ContainerAllocateResponse:
    envs: Mapping[str, str] = pairs(1)
    mounts: tuple[Mount, ...] = many(2, Mount)
    devices: tuple[DeviceSpec, ...] = many(3, DeviceSpec)
    annotations: Mapping[str, str] = pairs(4)
    cdi_devices: tuple[CdiDevice, ...] = many(5, CdiDevice)


@dataclass(frozen=True, slots=True)
class AllocateResponse:
    containers: tuple[ContainerAllocateResponse, ...] = many(1, ContainerAllocateResponse)


@dataclass(frozen=True, slots=True)
class PreStartRequest:
    ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of a resource, before it is written down."""

    id: str
    healthy: bool = True
    numa: int | None = None


def encode_units(units: Iterable[Unit]) -> bytes:
    """The message that lists every unit, put together faster than field by field."""
    # Hundreds of thousands of units are common, and none of them is kept while this is made.
    message = bytearray()
    for unit in units:
        message += delimited(1, delimited(1, unit.id.encode()) + _tail(unit.healthy, unit.numa))
    return bytes(message)


def measure_units(lengths: Mapping[int, int]) -> int:
    """The bytes of that message at most, by how many ids there are of each length."""
    # A unit that becomes unhealthy costs two bytes more, and the message must still fit then.
    return sum(
        count * len(delimited(1, delimited(1, bytes(length)) + _tail(False, None)))
        for length, count in lengths.items()
    )


@lru_cache(maxsize=64)
def _tail(healthy: bool, numa: int | None) -> bytes:
    topology = None if numa is None else Topology((NumaNode(numa),))
    return encode(Device("", HEALTHY if healthy else UNHEALTHY, topology))
