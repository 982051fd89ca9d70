"""What each of the four views says of a node, as the audit compares them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from slicewise.model import HOOKED, Allocation, Gpu, Isolation, MiB, Percent, Slice, Standing

NO_RECORD: Final = "it asks for GPUs and records no allocation"
"""The trouble of a pod on which nobody has recorded anything."""


class StrayOrigin(Enum):
    """Why a process belongs to no pod that is known."""

    HOST = "host"
    POD = "pod"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class AuditedPod:
    """One pod of the node; `trouble` says why its record cannot be read or is not believed.

    `running` names its running containers, init containers aside, which the kubelet does not list.
    """

    uid: str
    namespace: str
    name: str
    allocation: Allocation
    charges: tuple[Slice, ...]
    running: tuple[str, ...]
    trouble: str | None = None
    standing: Standing = Standing.UNCHECKED

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    def held(self, container: str) -> tuple[Slice, ...]:
        return self.allocation.slices_of(container)


@dataclass(frozen=True, slots=True)
class AuditedGpu:
    """One GPU, what is allocated of it over all pods, and what is wrong with it."""

    gpu: Gpu
    cores: Percent
    memory: MiB
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class AuditedProcess:
    """A process on a GPU: of no pod, or of an owner that does not hold the GPU.

    `owner` is its container or pod; without one, `origin` says why, and `pod` is an unknown UID.
    """

    gpu: Gpu
    pid: int
    memory: MiB
    command: str
    owner: str | None = None
    origin: StrayOrigin = StrayOrigin.HOST
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What one container uses of one GPU, and was allocated of it."""

    container: str
    gpu: Gpu
    used: MiB
    allocated: MiB
    limited: bool = False
    """Whether its memory is limited: what contexts take beyond is then tolerated."""


@dataclass(frozen=True, slots=True)
class UnlimitedUse:
    """A process of a container with limits that the library does not hold to them."""

    container: str
    gpu: Gpu
    pid: int
    isolation: Isolation = HOOKED
    """What the container was promised."""


@dataclass(frozen=True, slots=True)
class ComputeUse:
    """What a container uses of a GPU's compute, lastingly above its ceiling."""

    container: str
    gpu: Gpu
    used: Percent
    ceiling: Percent


@dataclass(frozen=True, slots=True)
class UnitHolder:
    """A container by the names the kubelet tells, and all it holds: resource to ids."""

    namespace: str
    pod: str
    container: str
    units: Mapping[str, frozenset[str]]

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


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

    node: str
    gpus: Sequence[AuditedGpu]
    processes: Sequence[AuditedProcess]
    uses: Sequence[ContainerUse]
    pods: Sequence[AuditedPod]
    holders: Sequence[UnitHolder] | None
    specs: Sequence[SpecFile] | None
    resources: frozenset[str]
    served: frozenset[str]
    name_spec: Callable[[str, frozenset[str]], str]
    departed: frozenset[str] = frozenset()
    unlimited: Sequence[UnlimitedUse] = ()
    overuses: Sequence[ComputeUse] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """Why pods may not start though their records are believed, by UID."""
    gaps: tuple[str, ...] = ()


def walk_holding(evidence: Evidence) -> Iterator[tuple[AuditedPod, str]]:
    """The running containers that hold GPUs."""
    for pod in evidence.pods:
        yield from ((pod, name) for name in pod.running if pod.held(name))


def name_gpu(gpu: Gpu) -> str:
    """The GPU as people look for it."""
    return f"gpu {gpu.index} ({gpu.uuid})"
