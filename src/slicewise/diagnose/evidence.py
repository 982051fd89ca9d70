"""What each of the four views says of a node, as the audit compares them.

Protocols name what the audit reads of the agent's own values, and nothing more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from slicewise.model import Allocation, Gpu, MiB, Percent, Role, Slice


class StrayOrigin(Enum):
    """Why a process belongs to no pod that is known."""

    HOST = "host"
    POD = "pod"
    UNSEEN = "unseen"


class AuditedContainer(Protocol):
    """One container that runs or is still to run."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def running(self) -> bool: ...


class AuditedPod(Protocol):
    """One pod of the node; `trouble` says why its allocation cannot be read."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def full_name(self) -> str: ...
    @property
    def allocation(self) -> Allocation: ...
    @property
    def trouble(self) -> str | None: ...
    @property
    def living(self) -> Sequence[AuditedContainer]: ...
    @property
    def charges(self) -> Sequence[Slice]: ...

    def held(self, container: str) -> Sequence[Slice]:
        """The slices of one container."""


class AuditedDevice(Protocol):
    """A GPU as the driver shows it; `trouble` says what is wrong with it."""

    @property
    def gpu(self) -> Gpu: ...
    @property
    def trouble(self) -> str | None: ...


class GpuTotals(Protocol):
    """What is allocated of one GPU over all pods."""

    @property
    def device(self) -> AuditedDevice: ...
    @property
    def cores(self) -> Percent: ...
    @property
    def memory(self) -> MiB: ...


class HeldUse(Protocol):
    """What one container was allocated of one GPU, and what it uses of it."""

    @property
    def device(self) -> AuditedDevice: ...
    @property
    def allocated(self) -> Slice: ...
    @property
    def memory(self) -> MiB: ...


class ContainerUse(Protocol):
    """The GPUs of one container."""

    @property
    def pod(self) -> AuditedPod: ...
    @property
    def container(self) -> AuditedContainer: ...
    @property
    def gpus(self) -> Sequence[HeldUse]: ...


class GpuProcess(Protocol):
    """A process that uses a GPU."""

    @property
    def pid(self) -> int: ...
    @property
    def memory(self) -> MiB: ...


class StrayUse(Protocol):
    """A process of no pod known here; `pod` is the unknown pod's UID."""

    @property
    def gpu(self) -> Gpu: ...
    @property
    def process(self) -> GpuProcess: ...
    @property
    def origin(self) -> StrayOrigin: ...
    @property
    def command(self) -> str: ...
    @property
    def pod(self) -> str | None: ...


class TrespassUse(Protocol):
    """A process on a GPU that its container does not hold."""

    @property
    def gpu(self) -> Gpu: ...
    @property
    def process(self) -> GpuProcess: ...
    @property
    def pod(self) -> AuditedPod: ...
    @property
    def container(self) -> str | None: ...
    @property
    def command(self) -> str: ...


class AuditedUsage(Protocol):
    """What the driver says of the node's GPUs, joined with who holds them."""

    @property
    def node(self) -> str: ...
    @property
    def gpus(self) -> Sequence[GpuTotals]: ...
    @property
    def containers(self) -> Sequence[ContainerUse]: ...
    @property
    def strays(self) -> Sequence[StrayUse]: ...
    @property
    def trespasses(self) -> Sequence[TrespassUse]: ...


class UnitHolder(Protocol):
    """A container by the names the kubelet tells, and all it holds: resource to ids."""

    @property
    def namespace(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def container(self) -> str: ...
    @property
    def units(self) -> Mapping[str, frozenset[str]]: ...


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One CDI spec of ours: for which container of which pod, and the GPUs it hands over.

    `gpus` is None where a spec hands over no GPU. `trouble` says why the file cannot be read;
    then nothing else is known of it.
    """

    name: str
    pod: str = ""
    container: str = ""
    gpus: frozenset[str] | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What each view says; `holders` and `specs` are None where none answered or none is kept.

    `resources` are the names whose units are ours to account for, `served` those whose containers
    are described by specs, which `name_spec` names by resource and units. `departed` are pods that
    left a moment ago: what they left is not yet due to be removed.
    """

    usage: AuditedUsage
    pods: Sequence[AuditedPod]
    holders: Sequence[UnitHolder] | None
    specs: Sequence[SpecFile] | None
    resources: frozenset[str]
    served: frozenset[str]
    name_spec: Callable[[str, frozenset[str]], str]
    departed: frozenset[str] = frozenset()
    gaps: tuple[str, ...] = ()


def walk_holding(evidence: Evidence) -> Iterator[tuple[AuditedPod, str]]:
    """The running containers that hold GPUs; of init containers the kubelet does not tell."""
    for pod in evidence.pods:
        for container in pod.living:
            told = container.running and container.role is not Role.INIT
            if told and pod.held(container.name):
                yield pod, container.name


def name_gpu(gpu: Gpu) -> str:
    """The GPU as people look for it."""
    return f"gpu {gpu.index} ({gpu.uuid})"
