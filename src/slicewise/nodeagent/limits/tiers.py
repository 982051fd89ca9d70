"""Which isolation tiers a node's GPUs offer: what the host has, tried where it must be tried.

The first thing that is missing is the reason that is published. A tier is offered only while it
can be kept, and `driver` only where an administrator says that it was tested on the node.
"""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from slicewise.model import IsolationTier as Tier
from slicewise.model import OfferedIsolation, SlicewiseError
from slicewise.nodeagent.limits.driver_limits import MemoryLimiter
from slicewise.nodeagent.limits.limiter_library import LimiterLibrary
from slicewise.nvml.driver import GpuDevice

_log = structlog.get_logger(__name__)
VCUDA: Final = "vcuda"
MPS_CONTROL: Final = "nvidia-cuda-mps-control"
_MPS_SECONDS: Final = 2.0
_MPS_CAPABILITY: Final = 70
_DAY_SECONDS: Final = 86_400.0
# The kernel's dmem controller lists a region of the driver's here.
_CAPACITY: Final = "dmem.capacity"
_REGION: Final = "nvidia/"


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What administrators say of a node's tiers."""

    mps_pipe: Path | None = None
    """The pipe folder of the MPS daemon; none looks for no daemon."""
    driver_tested: bool = False
    """Whether the driver's own memory limits were tested on this node."""
    cgroups: Path = Path("/sys/fs/cgroup")
    """Where cgroup v2 is mounted."""


class TierDetector:
    """Finds what is offered, and keeps what is dear to find until it may have changed."""

    def __init__(
        self,
        library: LimiterLibrary,
        settings: TierSettings | None = None,
        *,
        vcuda: Callable[[], bool] = lambda: False,
        limiter: MemoryLimiter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._settings = settings or TierSettings()
        self._vcuda = vcuda
        self._limiter = limiter
        self._cgroups = self._settings.cgroups
        self._clock = clock
        self._mps: tuple[float, str] | None = None
        self._trials: dict[tuple[str, str], tuple[float, str]] = {}

    def offered(self, device: GpuDevice, driver: str = "") -> OfferedIsolation:
        """The tiers of one GPU under this version of the driver."""
        if device.gpu.mig:
            return OfferedIsolation(why="it is in MIG mode")
        memory: list[Tier] = []
        compute: list[Tier] = []
        why = self._library.problem
        by = VCUDA if self._vcuda() else ""
        if self._library.installed is not None or by:
            memory.append(Tier.HOOK)
            compute.append(Tier.HOOK)
        if memory and self._settings.mps_pipe is not None:
            missing = self._lacks_mps(device)
            why = why or missing
            if not missing:
                memory.append(Tier.MPS)
                compute.append(Tier.MPS)
        missing, tested = self._lacks_driver(device, driver), self._settings.driver_tested
        if tested:
            why = why or missing
            memory += [] if missing else [Tier.DRIVER]
        untested = not missing and not tested
        return OfferedIsolation(tuple(memory), tuple(compute), untested, by, why)

    def _lacks_mps(self, device: GpuDevice) -> str:
        if device.capability < _MPS_CAPABILITY:
            return "MPS: its compute capability is below 7.0"
        now = self._clock()
        if self._mps is None or now - self._mps[0] > _DAY_SECONDS:
            assert self._settings.mps_pipe is not None
            self._mps = now, ask_mps(self._settings.mps_pipe)
        return self._mps[1]

    def _lacks_driver(self, device: GpuDevice, driver: str) -> str:
        """Why the driver cannot limit memory by cgroup; tried once a day and for each driver."""
        if self._limiter is None:
            return "driver: it is described by a file"
        key, now = (device.gpu.uuid, driver), self._clock()
        known = self._trials.get(key)
        if known is None or now - known[0] > _DAY_SECONDS:
            known = self._trials[key] = now, self._try_driver(device)
            if not known[1]:
                _log.info("driver limits memory", gpu=device.gpu.index, backend=self.backend)
        return known[1]

    def _try_driver(self, device: GpuDevice) -> str:
        assert self._limiter is not None
        if not (self._cgroups / "cgroup.controllers").is_file():
            return "driver: cgroup v2 is not mounted"
        scratch = self._cgroups / own_cgroup() / f"slicewise-trial-{os.getpid()}"
        size = device.gpu.memory << 20
        try:
            scratch.mkdir()
        except OSError as error:
            return f"driver: cannot make a cgroup: {error.strerror}"
        try:
            if self._limiter.limit_memory(device.gpu.uuid, scratch, size) != size:
                return "driver: a limit that was set is not in force"
            self._limiter.limit_memory(device.gpu.uuid, scratch, None)
        except SlicewiseError as error:
            return f"driver: {error}"
        finally:
            scratch.rmdir()
        return ""

    @property
    def backend(self) -> str:
        """Who keeps the driver's limits: the kernel's dmem controller, or the driver itself."""
        try:
            lines = (self._cgroups / _CAPACITY).read_text().splitlines()
        except OSError:
            lines = []
        return "dmem" if any(line.startswith(_REGION) for line in lines) else "driver-internal"


def own_cgroup(path: Path = Path("/proc/self/cgroup")) -> str:
    """The agent's own cgroup below the mounted tree, as cgroup v2 tells it; empty for the top."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    found = (line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
    # A cgroup above the mounted one is told by dots.
    return next((name for name in found if not name.startswith("..")), "")


def ask_mps(pipe: Path, program: str = MPS_CONTROL) -> str:
    """Why no MPS daemon serves this pipe folder; empty when one answers."""
    try:
        answer = subprocess.run(
            [program],
            input=b"get_server_list\n",
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
            capture_output=True,
            timeout=_MPS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"MPS: no answer within {_MPS_SECONDS:g} s"
    except OSError as error:
        return f"MPS: cannot run {program}: {error.strerror}"
    return "" if answer.returncode == 0 else f"MPS: {program} ended with {answer.returncode}"
