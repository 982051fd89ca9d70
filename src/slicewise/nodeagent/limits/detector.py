"""Finds processes that their limits do not hold, by what the driver sees and the library says.

A tenant can get around any library, so two views are compared at every sample: the processes that
the driver lists, and those that hold a slot. What is found twice in a row is told.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from slicewise.kube.outcomes import PodEvent
from slicewise.model import BYTES_PER_MIB, HOOKED, Gpu, Isolation, IsolationTier, Percent, Pod
from slicewise.nodeagent.limits.feed import ContainerKey, LimitedContainer, UseOrigin
from slicewise.nodeagent.usage.node_usage import ContainerUsage, HeldGpu, NodeUsage

_log = structlog.get_logger(__name__)
_SAMPLES: Final = 2
"""Samples in a row in which a process must be without a slot."""
_OVERUSE_SECONDS: Final = 10.0
_MARGIN: Final = 10
_HUNDREDTHS: Final = 100


@dataclass(frozen=True, slots=True)
class UnlimitedProcess:
    """A process of a limited container that has no slot on a GPU it uses."""

    uid: str
    owner: str
    """Its container as namespace/pod/container."""
    gpu: Gpu
    pid: int
    isolation: Isolation

    @property
    def container(self) -> str:
        return self.owner.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ComputeOveruse:
    """A container that has used more compute than its ceiling for a while."""

    owner: str
    gpu: Gpu
    used: Percent
    ceiling: Percent


@dataclass(frozen=True, slots=True)
class LimitFindings:
    """What does not hold now."""

    unlimited: tuple[UnlimitedProcess, ...] = ()
    overuses: tuple[ComputeOveruse, ...] = ()

    def count_unlimited(self, uid: str, container: str, uuid: str) -> int:
        """How many processes of a container on this GPU have no slot."""
        return sum(
            each.uid == uid and each.container == container and each.gpu.uuid == uuid
            for each in self.unlimited
        )


class LimitFigures(Protocol):
    """The part of the feed that the detector looks at."""

    @property
    def limited(self) -> Mapping[ContainerKey, LimitedContainer]:
        """What is known of every limited container."""

    def observe(self, key: ContainerKey, uuid: str, origin: UseOrigin, counted_bytes: int) -> None:
        """Learn what the driver counts for a container's processes."""


def is_hooked(isolation: Isolation | None) -> bool:
    """Whether the library is to hold the container."""
    if isolation is None:
        return False
    return IsolationTier.HOOK in (isolation.memory, isolation.compute) or (
        isolation.memory is IsolationTier.MPS
    )


class LimitDetector:
    """Compares both views of every sample, and remembers for how long they have differed."""

    def __init__(self, figures: LimitFigures, by_vcuda: Callable[[], bool] = lambda: False) -> None:
        self._figures = figures
        self._by_vcuda = by_vcuda
        self._seen: dict[tuple[str, str, int], int] = {}
        self._since: dict[tuple[str, str, str], float] = {}
        self._at: float | None = None
        self.findings = LimitFindings()

    def look(self, usage: NodeUsage) -> LimitFindings:
        """What does not hold by this sample and those before it; one sample counts once."""
        if usage.at is None or usage.at == self._at:
            return self.findings
        self._at = usage.at
        seen: dict[tuple[str, str, int], int] = {}
        since: dict[tuple[str, str, str], float] = {}
        unlimited: list[UnlimitedProcess] = []
        overuses: list[ComputeOveruse] = []
        for each in usage.containers:
            if not is_hooked(each.pod.isolation(each.container.name)) or self._excused(each):
                continue
            known = self._figures.limited.get((each.pod.uid, each.container.name))
            pids = frozenset() if known is None else known.pids
            for held in each.gpus:
                self._observe(each, held, pids)
                for pid in held.pids:
                    key = (each.pod.uid, held.device.gpu.uuid, pid)
                    if pid not in pids:
                        seen[key] = self._seen.get(key, 0) + 1
                        if seen[key] >= _SAMPLES:
                            unlimited.append(_tell(each, held, pid))
                overuse = None if known is None else self._judge(each, held, known, since)
                if overuse is not None:
                    overuses.append(overuse)
        self._seen, self._since = seen, since
        self.findings = LimitFindings(tuple(unlimited), tuple(overuses))
        return self.findings

    def _excused(self, each: ContainerUsage) -> bool:
        """Whether vcuda's own library holds the container, which has none of our files."""
        key = (each.pod.uid, each.container.name)
        return key not in self._figures.limited and self._by_vcuda()

    def _observe(self, each: ContainerUsage, held: HeldGpu, pids: frozenset[int]) -> None:
        if held.answers and held.pids and pids.issuperset(held.pids):
            gpu, key = held.device.gpu, (each.pod.uid, each.container.name)
            origin = (each.pod.namespace, gpu.model)
            self._figures.observe(key, gpu.uuid, origin, held.memory * BYTES_PER_MIB)

    def _judge(
        self,
        each: ContainerUsage,
        held: HeldGpu,
        known: LimitedContainer,
        since: dict[tuple[str, str, str], float],
    ) -> ComputeOveruse | None:
        gpu = known.gpus.get(held.device.gpu.uuid)
        if gpu is None or not gpu.grant.cores or not held.answers:
            return None
        ceiling = Percent(gpu.fed.ceiling // _HUNDREDTHS)
        if held.cores <= ceiling + _MARGIN:
            return None
        assert self._at is not None
        key = (each.pod.uid, each.container.name, gpu.grant.uuid)
        since[key] = self._since.get(key, self._at)
        if self._at - since[key] < _OVERUSE_SECONDS:
            return None
        return ComputeOveruse(_name(each), held.device.gpu, held.cores, ceiling)


def _tell(each: ContainerUsage, held: HeldGpu, pid: int) -> UnlimitedProcess:
    promised = each.pod.isolation(each.container.name) or HOOKED
    return UnlimitedProcess(each.pod.uid, _name(each), held.device.gpu, pid, promised)


def _name(each: ContainerUsage) -> str:
    return f"{each.pod.full_name}/{each.container.name}"


class LimitWatch:
    """Looks at every sample, and tells of each process without a limit once, on its pod."""

    def __init__(
        self,
        detector: LimitDetector,
        usage: Callable[[], NodeUsage],
        find_pod: Callable[[str], Pod | None],
        post: Callable[[Pod, PodEvent], None],
    ) -> None:
        self._detector = detector
        self._usage = usage
        self._find_pod = find_pod
        self._post = post
        self._told: set[tuple[str, int]] = set()

    def look(self) -> None:
        found = self._detector.look(self._usage()).unlimited
        self._told &= {(each.uid, each.pid) for each in found}
        for each in found:
            if (each.uid, each.pid) in self._told:
                continue
            self._told.add((each.uid, each.pid))
            _log.warning("process not limited", container=each.owner, pid=each.pid)
            pod = self._find_pod(each.uid)
            if pod is not None:
                note = (
                    f"process {each.pid} of container {each.container} uses gpu {each.gpu.index} "
                    "without the library that holds the container to its share: it is linked "
                    "statically, or has a loader of its own"
                )
                event = PodEvent(reason="GpuProcessNotLimited", note=note, warning=True)
                self._post(pod, event)

    async def run(self, every: float) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(every)
