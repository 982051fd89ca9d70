"""The driver's own memory limits, set on cgroups: nothing in a pod gets around them.

A pod's cgroup is there before its containers are. It is limited before a container may start, so
that no process ever runs without the limit. Where several containers of a pod have GPUs, each one's
own cgroup is limited as soon as it appears, which keeps them from each other's part.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import structlog

from slicewise.dialects.shared.injection import ContainerGpus
from slicewise.kubelet.inotify import InotifyWatch
from slicewise.model import (
    BYTES_PER_MIB,
    FULL,
    Allocation,
    Gpu,
    IsolationTier,
    Slice,
    SlicewiseError,
    peak,
)
from slicewise.model.request import Phased
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nodeagent.usage.cgroups import PodCgroups

_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 5.0
Limits = Mapping[str, int]
"""Bytes of memory by the UUID of the GPU."""
FindOwner = Callable[[str], Awaitable[tuple[str, str] | None]]
"""The pod's UID and the name of the container with this id, as the runtime tells."""


class LimitRefusedError(SlicewiseError):
    """A container was promised limits that this node cannot keep now."""


@runtime_checkable
class MemoryLimiter(Protocol):
    """What the driver tier needs of the driver."""

    def limit_memory(self, uuid: str, cgroup: Path, limit: int | None) -> int | None:
        """Set or clear the limit of a cgroup on a GPU, and return what is then in force."""


@dataclass(frozen=True, slots=True)
class PodLimits:
    """What the driver is to hold one pod to, and its containers where it has several."""

    uid: str
    pod: Limits
    containers: Mapping[str, Limits] = field(default_factory=dict)


def read_limits(
    uid: str, containers: Sequence[Phased], allocation: Allocation, gpus: Sequence[Gpu]
) -> PodLimits | None:
    """What a pod's record promises that the driver keeps; None where that is nothing."""
    known = {gpu.index: gpu for gpu in gpus}
    kept = {
        each.name: each.slices
        for each in allocation.containers
        if each.isolation is not None and each.isolation.memory is IsolationTier.DRIVER
    }
    limited = {piece.gpu for slices in kept.values() for piece in slices if piece.cores < FULL}
    if not limited:
        return None
    most = peak(containers, allocation.by_container)
    pod = _size(known, (piece for piece in most if piece.gpu in limited))
    if len(allocation.containers) == 1:
        return PodLimits(uid, pod)
    return PodLimits(uid, pod, {name: _size(known, slices) for name, slices in kept.items()})


def _size(gpus: Mapping[int, Gpu], slices: Iterable[Slice]) -> Limits:
    return {
        gpus[piece.gpu].uuid: min(piece.memory, gpus[piece.gpu].memory) * BYTES_PER_MIB
        for piece in slices
        if piece.gpu in gpus and piece.cores < FULL
    }


class DriverLimits:
    """Sets limits before containers start, and keeps them while they run."""

    def __init__(self, limiter: MemoryLimiter, cgroups: Path) -> None:
        self._limiter = limiter
        self._cgroups = PodCgroups(cgroups)
        self._arrivals = InotifyWatch()
        self._limited: set[Path] = set()
        self._failing: dict[str, str] = {}

    def hold(self, held: ContainerGpus) -> None:
        """Limit the container's pod before it starts; blocks on the driver.

        Raises LimitRefusedError where the limit is not in force afterwards.
        """
        pod = held.pod
        wanted = read_limits(pod.uid, pod.containers, held.allocation, held.node.gpus)
        if wanted is None:
            return
        try:
            self._limit_pod(wanted)
        except SlicewiseError as error:
            raise LimitRefusedError(
                f"container {held.container.name} was promised that the driver limits its memory: "
                f"{error}"
            ) from error

    async def run(
        self,
        pods: Callable[[], Sequence[NodePod]],
        gpus: Callable[[], Sequence[Gpu]],
        find_owner: FindOwner,
    ) -> None:
        """Limit containers as their cgroups appear, and what an earlier agent left."""
        with self._arrivals:
            while True:
                await self.look(pods(), gpus(), find_owner)
                await self._arrivals.wait(LOOK_SECONDS)

    async def look(
        self, pods: Sequence[NodePod], gpus: Sequence[Gpu], find_owner: FindOwner
    ) -> None:
        """Put every limit in force that records promise to pods which have a cgroup."""
        limited, self._limited = self._limited, set()
        for pod in pods:
            wanted = read_limits(pod.uid, pod.containers, pod.recorded, gpus)
            if wanted is None or self._cgroups.find_pod(pod.uid) is None:
                continue
            try:
                folder = await asyncio.to_thread(self._limit_pod, wanted)
                await self._limit_containers(wanted, folder, limited, find_owner)
            except SlicewiseError as error:
                self._complain(pod, str(error))
            else:
                self._failing.pop(pod.uid, None)

    def _limit_pod(self, wanted: PodLimits) -> Path:
        folder = self._cgroups.find_pod(wanted.uid)
        if folder is None:
            raise LimitRefusedError(f"its pod has no cgroup under {self._cgroups.root}")
        if wanted.containers:
            # Before the container's own cgroup can be made in it.
            self._arrivals.follow(folder)
        self._limit(folder, wanted.pod)
        return folder

    async def _limit_containers(
        self, wanted: PodLimits, folder: Path, limited: set[Path], find_owner: FindOwner
    ) -> None:
        if not wanted.containers:
            return
        for identity, cgroup in self._cgroups.find_containers(folder).items():
            if cgroup not in limited:
                owner = await find_owner(identity)
                if owner is None or owner[0] != wanted.uid:
                    # The pod's sandbox, or a container that the runtime does not know yet.
                    continue
                await asyncio.to_thread(self._limit, cgroup, wanted.containers.get(owner[1], {}))
            self._limited.add(cgroup)

    def _limit(self, cgroup: Path, limits: Limits) -> None:
        for uuid, limit in limits.items():
            found = self._limiter.limit_memory(uuid, cgroup, limit)
            if found != limit:
                told = "no limit" if found is None else f"{found} bytes"
                raise LimitRefusedError(
                    f"{uuid}: {limit} bytes were set on {cgroup} and {told} are in force"
                )

    def _complain(self, pod: NodePod, problem: str) -> None:
        if self._failing.get(pod.uid) != problem:
            self._failing[pod.uid] = problem
            _log.warning("driver limit not in force", pod=pod.full_name, error=problem)
