"""The messages of pod-resources v1; v1alpha1 numbers the part it has alike."""

from dataclasses import dataclass
from typing import Final

from slicewise.kubelet.codec import many, number, numbers, one, text, texts
from slicewise.kubelet.v1beta1 import CdiDevice, Topology

V1: Final = "v1.PodResourcesLister"
V1_ALPHA: Final = "v1alpha1.PodResourcesLister"


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """Units of one resource; the kubelet may list one entry for each unit."""

    resource: str = text(1)
    ids: tuple[str, ...] = texts(2)
    topology: Topology | None = one(3, Topology)


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    kind: str = text(1)
    size: int = number(2)


@dataclass(frozen=True, slots=True)
class ClaimResource:
    cdi_devices: tuple[CdiDevice, ...] = many(1, CdiDevice)
    driver: str = text(2)
    pool: str = text(3)
    device: str = text(4)


@dataclass(frozen=True, slots=True)
class DynamicResource:
    claim: str = text(2)
    namespace: str = text(3)
    resources: tuple[ClaimResource, ...] = many(4, ClaimResource)


@dataclass(frozen=True, slots=True)
class ContainerResources:
    name: str = text(1)
    devices: tuple[ContainerDevices, ...] = many(2, ContainerDevices)
    cpus: tuple[int, ...] = numbers(3)
    memory: tuple[ContainerMemory, ...] = many(4, ContainerMemory)
    claims: tuple[DynamicResource, ...] = many(5, DynamicResource)


@dataclass(frozen=True, slots=True)
class PodResources:
    name: str = text(1)
    namespace: str = text(2)
    containers: tuple[ContainerResources, ...] = many(3, ContainerResources)


@dataclass(frozen=True, slots=True)
class ListResponse:
    pods: tuple[PodResources, ...] = many(1, PodResources)


@dataclass(frozen=True, slots=True)
class AllocatableResponse:
    devices: tuple[ContainerDevices, ...] = many(1, ContainerDevices)
    cpus: tuple[int, ...] = numbers(2)
    memory: tuple[ContainerMemory, ...] = many(3, ContainerMemory)


@dataclass(frozen=True, slots=True)
class GetRequest:
    name: str = text(1)
    namespace: str = text(2)


@dataclass(frozen=True, slots=True)
class GetResponse:
    pod: PodResources | None = one(1, PodResources)
