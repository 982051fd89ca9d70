"""The agent's loop over limited containers: ten times a second, read what they used, say what next.

The decisions are in `control`; here files and the driver are read and grants renewed. While the
agent is silent, libraries fall back to the guarantees by themselves.
"""

import asyncio
import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from slicewise.nodeagent.limits import control
from slicewise.nodeagent.limits.grant_file import (
    ONE,
    DeviceGrant,
    FedDevice,
    GrantFlags,
    LimitFileError,
)
from slicewise.nodeagent.limits.limit_folders import LimitFiles, LimitFolders
from slicewise.nodeagent.limits.usage_file import DeviceMeters
from slicewise.nvml.driver import DriverError

_log = structlog.get_logger(__name__)
_RESCAN: Final = 10
"""Periods between two looks at which containers and processes there are."""
_HUNGRY_NS: Final = 150_000_000
_MOST_RATE: Final = 2 * control.ALL
_LEARNED: Final = 32
_MOST_ORIGINS: Final = 1024
_HUNDREDTHS: Final = 100

ContainerKey = tuple[str, str]
"""A pod's UID and a container's name."""
UseOrigin = tuple[str, str]
"""A namespace and a GPU's model."""


class ComputeSource(Protocol):
    """The part of a driver that the loop asks."""

    def compute(self) -> Mapping[str, Mapping[int, int]]:
        """Percent of compute by UUID and PID."""


@dataclass(frozen=True, slots=True)
class LimitedGpu:
    """What is known of one container's limits on one GPU."""

    grant: DeviceGrant
    fed: FedDevice
    meters: DeviceMeters | None = None
    tracked_bytes: int | None = None
    """What its processes say they allocated."""
    error_ratio: float | None = None
    """How far its measured use is from its ceiling, while it is held back."""


@dataclass(frozen=True, slots=True)
class LimitedContainer:
    """What is known of one container's limits: its GPUs, and the processes that have a slot."""

    gpus: Mapping[str, LimitedGpu]
    pids: frozenset[int] = frozenset()
    damage: str = ""
    """What its tenant did to its usage file; then its figures are missing."""


@dataclass(slots=True)
class FedGpu:
    grant: DeviceGrant
    scale: float = 1.0
    ceiling: int = 0
    spent: int | None = None
    throttled: int = 0
    hungry_until: int = 0
    rate: int = 0
    seen: int = 0
    overhead: int = 0
    meters: DeviceMeters | None = None
    tracked: int | None = None
    context_bytes: int = 0
    rounding: float = control.ROUNDING
    timed: bool = True
    samples: deque[control.UseSample] = field(default_factory=lambda: deque(maxlen=control.WINDOW))
    extra: deque[int] = field(default_factory=lambda: deque(maxlen=control.OVERHEAD_SAMPLES))

    def take(self, meters: DeviceMeters, now: int, elapsed: int) -> None:
        """The container's own count since the last period."""
        if self.spent is not None and elapsed > 0:
            grown = max(0, meters.spent_ns - self.spent)
            self.rate = min(_MOST_RATE, grown * control.ALL // elapsed)
            if meters.throttled_ns > self.throttled:
                self.hungry_until = now + _HUNGRY_NS
        self.spent, self.throttled, self.meters = meters.spent_ns, meters.throttled_ns, meters

    def correct(self, busy: Mapping[int, int] | None, pids: Iterable[int]) -> None:
        """The driver's count; the scale stays where the driver tells nothing."""
        if busy is None:
            return
        used = [percent for pid in pids if (percent := busy.get(pid, 0)) > 0]
        self.seen = sum(used) * _HUNDREDTHS
        self.samples.append(control.UseSample(sum(used), self.rate / _HUNDREDTHS, len(used)))
        scale, samples = self.scale, self.samples
        self.scale = control.correct_scale(scale, samples, self.rounding, timed=self.timed)

    def claim(self, now: int) -> control.ComputeClaim:
        return control.ComputeClaim(
            self.grant.cores,
            self.grant.limit,
            self.rate,
            now < self.hungry_until,
            self.grant.priority,
            self.grant.weight,
        )

    @property
    def fed(self) -> FedDevice:
        paced = self.grant.cores > 0
        return FedDevice(
            self.ceiling if paced else self.grant.ceiling,
            self.grant.limit,
            control.write_scale(self.scale),
            self.overhead,
            self.context_bytes,
            self.seen,
        )


class _FedContainer:
    def __init__(self, files: LimitFiles, rounding: float = control.ROUNDING) -> None:
        self.files = files
        try:
            self.inode = files.folder.stat().st_ino
        except OSError:
            files.close()
            raise
        self.pids: frozenset[int] = frozenset()
        self.damage = ""
        # After a restart of the agent, the grant has what was learned before it.
        self.gpus = [
            FedGpu(
                each,
                scale=each.scale / ONE,
                ceiling=each.cores,
                overhead=each.overhead_bytes,
                context_bytes=each.context_bytes,
                rounding=rounding,
                timed=GrantFlags.NO_TIMING not in files.grant.flags,
            )
            for each in files.grant.devices
        ]

    def look(self, now: int, elapsed: int, busy: Mapping[str, Mapping[int, int]]) -> None:
        try:
            meters = self.files.read_meters()
        except (LimitFileError, OSError) as error:
            self._damaged(str(error))
            return
        for gpu, each in zip(self.gpus, meters, strict=True):
            gpu.take(each, now, elapsed)
            gpu.correct(busy.get(gpu.grant.uuid), self.pids)

    def look_at_slots(self) -> None:
        """Which processes live, by the locks that the kernel keeps, and what they allocated."""
        try:
            resized = self.files.restore_size()
            slots = self.files.read_slots()
            holders = [(each, self.files.find_holder(each.index)) for each in slots]
        except (LimitFileError, OSError) as error:
            self._damaged(str(error))
            return
        if resized:
            self._damaged("its tenant had changed its size")
            return
        self.damage = ""
        self.pids = frozenset(pid for _, pid in holders if pid)
        for at, gpu in enumerate(self.gpus):
            gpu.tracked = sum(slot.used[at] for slot, pid in holders if pid)

    def _damaged(self, damage: str) -> None:
        if damage != self.damage:
            _log.warning("usage file damaged", folder=str(self.files.folder), reason=damage)
        self.damage = damage
        for gpu in self.gpus:
            gpu.meters = gpu.tracked = None
            gpu.rate = 0

    def tell(self, now: int) -> LimitedContainer:
        gpus = {
            gpu.grant.uuid: LimitedGpu(
                gpu.grant, gpu.fed, gpu.meters, gpu.tracked, _error(gpu, now)
            )
            for gpu in self.gpus
        }
        return LimitedContainer(gpus, self.pids, self.damage)


def _error(gpu: FedGpu, now: int) -> float | None:
    if not gpu.grant.cores or not gpu.ceiling or now >= gpu.hungry_until or not gpu.samples:
        return None
    seen = sum(each.seen for each in gpu.samples) / len(gpu.samples)
    return seen * _HUNDREDTHS / gpu.ceiling - 1


class LimitFeed:
    """Feeds the grants of all limited containers of the node."""

    def __init__(
        self,
        folders: LimitFolders,
        driver: ComputeSource,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        *,
        rounding: float = control.ROUNDING,
    ) -> None:
        self._rounding = rounding
        self._folders = folders
        self._driver = driver
        self._clock = clock_ns
        self._fed: dict[ContainerKey, _FedContainer] = {}
        self._learned: dict[UseOrigin, deque[int]] = {}
        self._ticks = 0
        self._last = 0
        self.limited: Mapping[ContainerKey, LimitedContainer] = {}
        """What is known of every limited container; replaced as a whole."""

    def tick(self) -> None:
        """One period: look at every container, decide for every GPU, and write every grant."""
        now = self._clock()
        elapsed, self._last = now - self._last if self._last else 0, now
        rescan = self._ticks % _RESCAN == 0
        self._ticks += 1
        if rescan:
            self._rescan()
        busy = self._ask_driver() if self._fed else {}
        for each in self._fed.values():
            if rescan:
                each.look_at_slots()
            each.look(now, elapsed, busy)
        self._decide(now)
        for key, each in list(self._fed.items()):
            try:
                each.files.feed([gpu.fed for gpu in each.gpus], now)
            except (OSError, ValueError) as error:
                _log.warning("grant not renewed", uid=key[0], container=key[1], error=str(error))
        if rescan:
            self.limited = {key: each.tell(now) for key, each in self._fed.items()}

    def observe(self, key: ContainerKey, uuid: str, origin: UseOrigin, counted_bytes: int) -> None:
        """Learn what the driver counts for a container's processes on one of its GPUs.

        A tenant writes its own count, so what is learned from it is believed for its namespace
        alone.
        """
        fed = self._fed.get(key)
        if fed is None:
            return
        for gpu in fed.gpus:
            if gpu.grant.uuid == uuid and gpu.tracked is not None:
                gpu.extra.append(counted_bytes - gpu.tracked)
                gpu.overhead = control.find_overhead(tuple(gpu.extra))
                if fed.pids and gpu.overhead:
                    if len(self._learned) >= _MOST_ORIGINS:
                        self._learned.clear()
                    known = self._learned.setdefault(origin, deque(maxlen=_LEARNED))
                    known.append(gpu.overhead // len(fed.pids))
                if origin in self._learned:
                    gpu.context_bytes = int(statistics.median(self._learned[origin]))

    async def run(self) -> None:
        """Feed until cancelled, off the event loop, for a driver may be slow."""
        try:
            while True:
                await asyncio.to_thread(self.tick)
                await asyncio.sleep(control.PERIOD_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        for each in self._fed.values():
            each.files.close()
        self._fed.clear()

    def _ask_driver(self) -> Mapping[str, Mapping[int, int]]:
        try:
            return self._driver.compute()
        except DriverError:
            # The sampler tells of it; the scale stays as it is.
            return {}

    def _rescan(self) -> None:
        present = set(self._folders.containers())
        for key in [key for key in self._fed if key not in present]:
            self._fed.pop(key).files.close()
        for key in present:
            folder = self._folders.root / key[0] / key[1]
            known = self._fed.get(key)
            with contextlib.suppress(OSError):
                if known is not None and folder.stat().st_ino == known.inode:
                    continue
            if known is not None:
                self._fed.pop(key).files.close()
            try:
                self._fed[key] = _FedContainer(LimitFiles(folder), self._rounding)
            except (LimitFileError, OSError) as error:
                _log.warning("limits unreadable", folder=str(folder), error=str(error))

    def _decide(self, now: int) -> None:
        by_gpu: dict[str, list[FedGpu]] = {}
        for each in self._fed.values():
            for gpu in each.gpus:
                by_gpu.setdefault(gpu.grant.uuid, []).append(gpu)
        for gpus in by_gpu.values():
            paced = [gpu for gpu in gpus if gpu.grant.cores]
            set_gpu_ceilings(paced, sum(gpu.seen for gpu in gpus if not gpu.grant.cores), now)


def set_gpu_ceilings(paced: Sequence[FedGpu], unpaced: int, now: int) -> None:
    ceilings = control.set_ceilings([gpu.claim(now) for gpu in paced], unpaced)
    for gpu, ceiling in zip(paced, ceilings, strict=True):
        gpu.ceiling = ceiling
