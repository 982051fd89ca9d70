"""What a container receives with its GPUs, as plain values: the agent puts them into effect."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from slicewise.dialects.shared.indexes import used_gpu
from slicewise.model import (
    Allocation,
    Container,
    Gpu,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Slice,
)

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
CONTROLS: Final = ("nvidiactl", "nvidia-uvm")
TOOLS: Final = "nvidia-uvm-tools"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node by its name under the host's /dev, and its path in the container."""

    name: str
    path: str
    gpu: bool = False
    """Whether the node is a GPU: without it the container must not start."""


@dataclass(frozen=True, slots=True)
class HostMount:
    """A folder or file of the host in the container, read-only unless it says otherwise."""

    source: str
    path: str
    optional: bool = False
    """Whether the container does without it where the host has none."""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link under the host's /dev to a device node there."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class VcudaLimit:
    """What gpu-manager's library reads of a container's share."""

    memory: MiB
    cores: Percent
    ceiling: Percent | None
    whole: bool


@dataclass(frozen=True, slots=True)
class GpuManagerPaths:
    """Where gpu-manager keeps things on the host, and what it adds to every container."""

    pods: str = "/etc/gpu-manager/vm"
    drivers: str = "/etc/gpu-manager/vdriver"
    devices: tuple[str, ...] = ()
    """Further device nodes of the host that containers with GPUs receive, under /dev."""


@dataclass(frozen=True, slots=True)
class Injection:
    """Everything one container receives."""

    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[HostMount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    links: tuple[Link, ...] = ()
    limit: VcudaLimit | None = None


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """One container's GPUs on its node, and the units by which the kubelet knows it."""

    pod: Pod
    container: Container
    request: Request
    allocation: Allocation
    node: Node
    resource: str
    ids: frozenset[str]
    places: GpuManagerPaths = GpuManagerPaths()
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The labels of the node."""
    compat32: bool = False
    """Whether the container asks for gpu-manager's 32-bit libraries."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        return self.allocation.slices_of(self.container.name)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs they were cut from."""
        return tuple(used_gpu(self.node, piece) for piece in self.slices)

    @property
    def uuids(self) -> str:
        """The GPUs as NVIDIA's runtime reads them."""
        return ",".join(gpu.uuid for gpu in self.gpus)

    @property
    def minors(self) -> str:
        return ",".join(str(gpu.minor) for gpu in self.gpus)


def gpu_nodes(held: ContainerGpus, *, tools: bool = True) -> tuple[DeviceNode, ...]:
    """The device nodes of the container's GPUs, and those of the driver beside them."""
    return list_nodes(held.gpus, tools=tools)


def list_nodes(gpus: Iterable[Gpu], *, tools: bool = True) -> tuple[DeviceNode, ...]:
    """The device nodes of these GPUs, and those of the driver beside them."""
    names = (f"nvidia{gpu.minor}" for gpu in gpus)
    others = (*CONTROLS, TOOLS) if tools else CONTROLS
    return (
        *(DeviceNode(name, f"/dev/{name}", gpu=True) for name in names),
        *(DeviceNode(name, f"/dev/{name}") for name in others),
    )


def no_flag(held: ContainerGpus, now_ns: int) -> PodRecord:
    """Nothing is written on pods of a system that looks for no flag."""
    return PodRecord()
