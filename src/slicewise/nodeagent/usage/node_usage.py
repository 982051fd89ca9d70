"""Who uses how much of which GPU: the driver's processes joined with who holds what.

Every process on a GPU is counted exactly once: for a container that holds the GPU, as a
trespass of a container that does not, or as a stray that belongs to no pod known here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slicewise.diagnose.evidence import StrayOrigin
from slicewise.kube.local_pods import LocalContainer
from slicewise.model import Gpu, MiB, Percent, Slice
from slicewise.nodeagent.node_pods import NodePod, PodIndex, ProcessOwner
from slicewise.nodeagent.usage.cgroups import HostProcess
from slicewise.nvml.driver import GpuDevice, Load, Process


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What the driver and /proc said at one moment, in seconds since the epoch."""

    loads: Mapping[str, Load]
    seen: Mapping[int, HostProcess]
    at: float


@dataclass(frozen=True, slots=True)
class StrayProcess:
    """A process on a GPU that runs in no pod known here; `pod` is the unknown pod's UID."""

    gpu: Gpu
    process: Process
    origin: StrayOrigin
    command: str = ""
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class Trespass:
    """A process on a GPU that its container does not hold."""

    gpu: Gpu
    process: Process
    pod: NodePod
    container: str | None
    command: str = ""


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """What one container was allocated of one GPU, and what it uses of it.

    `answers` is false when the GPU's load is not known; then nothing is known of its use.
    """

    device: GpuDevice
    allocated: Slice
    answers: bool
    memory: MiB
    cores: Percent
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """One living container of a pod that asks for GPUs; `gpus` are those it holds."""

    pod: NodePod
    container: LocalContainer
    gpus: tuple[HeldGpu, ...] = ()

    @property
    def memory(self) -> MiB:
        """What it uses over all its GPUs."""
        return MiB(sum(each.memory for each in self.gpus))

    @property
    def cores(self) -> Percent:
        """What it uses over all its GPUs; 100 is one GPU."""
        return Percent(sum(each.cores for each in self.gpus))

    @property
    def allocated_cores(self) -> Percent:
        """What it was allocated over all its GPUs."""
        return Percent(sum(each.allocated.cores for each in self.gpus))

    @property
    def allocated_memory(self) -> MiB:
        """What it was allocated over all its GPUs; all of a GPU where no amount was named."""
        return MiB(sum(each.allocated.memory or each.device.gpu.memory for each in self.gpus))


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """One GPU: its load, or None when it does not answer, and what is allocated of it."""

    device: GpuDevice
    load: Load | None
    cores: Percent
    memory: MiB


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The whole node at one moment; `at` is None before the first reading."""

    node: str
    at: float | None
    gpus: tuple[GpuUsage, ...]
    containers: tuple[ContainerUsage, ...]
    strays: tuple[StrayProcess, ...]
    trespasses: tuple[Trespass, ...]


def measure(
    node: str, gpus: Iterable[GpuDevice], pods: Iterable[NodePod], reading: UsageSample | None
) -> NodeUsage:
    """The usage of every GPU and container; nothing is known of it without a reading."""
    gpus, pods = tuple(gpus), tuple(pods)
    join = _Join(gpus, pods)
    if reading is not None:
        join.take(reading)
    return NodeUsage(
        node=node,
        at=None if reading is None else reading.at,
        gpus=tuple(_sum_gpus(gpus, pods, reading)),
        containers=tuple(join.sum_containers(pods)),
        strays=tuple(join.strays),
        trespasses=tuple(join.trespasses),
    )


_Key = tuple[str, str, int]
"""A pod's UID, a container's name and a GPU's index."""


class _Join:
    """Sorts processes by owner, once per reading."""

    def __init__(self, gpus: tuple[GpuDevice, ...], pods: tuple[NodePod, ...]) -> None:
        self._gpus = {device.gpu.index: device for device in gpus}
        self._index = PodIndex(pods)
        self._answering: frozenset[str] = frozenset()
        self._used: dict[_Key, list[Process]] = {}
        for pod in pods:
            for container in pod.living:
                for piece in pod.held(container.name):
                    self._used[pod.uid, container.name, piece.gpu] = []
        self.strays: list[StrayProcess] = []
        self.trespasses: list[Trespass] = []

    def take(self, reading: UsageSample) -> None:
        """Count every process of the reading for its owner."""
        self._answering = frozenset(reading.loads)
        for device in self._gpus.values():
            load = reading.loads.get(device.gpu.uuid)
            for process in () if load is None else load.processes:
                self._count(device.gpu, process, reading.seen.get(process.pid))

    def _count(self, gpu: Gpu, process: Process, found: HostProcess | None) -> None:
        if found is None:
            self.strays.append(StrayProcess(gpu, process, StrayOrigin.UNSEEN))
            return
        owner = self._index.find(found.refs)
        if owner is None:
            pod = next((ref.pod for ref in found.refs if ref.pod), None)
            origin = StrayOrigin.POD if found.refs else StrayOrigin.HOST
            self.strays.append(StrayProcess(gpu, process, origin, found.command, pod))
            return
        held = self._find_held(owner, gpu)
        if held is not None:
            held.append(process)
            return
        self.trespasses.append(Trespass(gpu, process, owner.pod, owner.container, found.command))

    def _find_held(self, owner: ProcessOwner, gpu: Gpu) -> list[Process] | None:
        if owner.container is not None:
            return self._used.get((owner.pod.uid, owner.container, gpu.index))
        # While the status lags, a GPU that only one container of the pod holds tells enough.
        holders = [
            found
            for container in owner.pod.living
            if (found := self._used.get((owner.pod.uid, container.name, gpu.index))) is not None
        ]
        return holders[0] if len(holders) == 1 else None

    def sum_containers(self, pods: Iterable[NodePod]) -> Iterator[ContainerUsage]:
        """What each living container of the pods that ask for GPUs uses."""
        for pod in pods:
            if not pod.asks and not pod.claims:
                continue
            for container in pod.living:
                gpus = tuple(
                    self._sum_held(pod, container, piece)
                    for piece in pod.held(container.name)
                    if piece.gpu in self._gpus
                )
                yield ContainerUsage(pod, container, gpus)

    def _sum_held(self, pod: NodePod, container: LocalContainer, piece: Slice) -> HeldGpu:
        used = self._used[pod.uid, container.name, piece.gpu]
        device = self._gpus[piece.gpu]
        return HeldGpu(
            device,
            piece,
            device.gpu.uuid in self._answering,
            MiB(sum(process.memory for process in used)),
            Percent(sum(process.cores for process in used)),
            tuple(sorted(process.pid for process in used)),
        )


def _sum_gpus(
    gpus: Iterable[GpuDevice], pods: Iterable[NodePod], reading: UsageSample | None
) -> Iterator[GpuUsage]:
    allocated: dict[int, tuple[int, int]] = {}
    for pod in pods:
        for piece in pod.charges:
            cores, memory = allocated.get(piece.gpu, (0, 0))
            allocated[piece.gpu] = (cores + piece.cores, memory + piece.memory)
    # Several pods may use one claim.
    for claim in {each.uid: each for pod in pods for each in pod.claims}.values():
        for piece in claim.charges:
            cores, memory = allocated.get(piece.gpu, (0, 0))
            allocated[piece.gpu] = (cores + piece.cores, memory + piece.memory)
    for device in gpus:
        cores, memory = allocated.get(device.gpu.index, (0, 0))
        load = None if reading is None else reading.loads.get(device.gpu.uuid)
        yield GpuUsage(device, load, Percent(cores), MiB(memory))
