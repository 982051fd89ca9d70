"""What keeps one container within its share: its grant, and what is mounted into it for that.

A grant is made of the signed record alone, which is what the container was allocated; nothing
that a tenant wrote afterwards has a part in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slicewise.dialects.shared.injection import ContainerGpus, HostMount, Injection
from slicewise.model import (
    BYTES_PER_MIB,
    FULL,
    ContainerAllocation,
    Gpu,
    Isolation,
    IsolationTier,
    MiB,
    Slice,
)
from slicewise.nodeagent.limits.driver_limits import DriverLimits, LimitRefusedError
from slicewise.nodeagent.limits.grant_file import DeviceGrant, GrantFlags, LimitGrant
from slicewise.nodeagent.limits.limit_folders import BY_UNITS, GRANT, USAGE, LimitFolders
from slicewise.nodeagent.limits.limiter_library import INSIDE, InstalledLibrary, LimiterLibrary
from slicewise.nodeagent.settings import LimitSettings

USUAL: Final = LimitSettings()
PRELOAD_INSIDE: Final = "/etc/ld.so.preload"
LIMITS_INSIDE: Final = "/etc/slicewise/limit"
ISOLATION_ENV: Final = "SLICEWISE_ISOLATION"
# gpu-manager's own library names the file of its limits, which ours and NVIDIA's do not.
_VCUDA_MARK: Final = b"/etc/vcuda"
_VCUDA_PLACES: Final = ("nvidia/lib64/libcuda.so.1", "nvidia/lib/libcuda.so.1")
_HUNDREDTHS: Final = 100
# Client and server of MPS meet there.
_SHARED_MEMORY: Final = "/dev/shm"


def build_grant(held: ContainerGpus, settings: LimitSettings = USUAL) -> LimitGrant | None:
    """What the container's record grants it; None where no limit of ours was promised."""
    given = next(each for each in held.allocation.containers if each.name == held.container.name)
    if not given.isolation:
        return None
    flags = GrantFlags.FAIL_CLOSED | GrantFlags.SHOW_LIMITS | GrantFlags.COUNT_MANAGED
    if IsolationTier.NONE < given.isolation.memory < IsolationTier.DRIVER:
        flags |= GrantFlags.GATE_MEMORY
    if given.isolation.compute is IsolationTier.HOOK:
        flags |= GrantFlags.GATE_COMPUTE
    if not settings.timing:
        flags |= GrantFlags.NO_TIMING
    devices = tuple(
        _grant_gpu(held, given, at, settings.context) for at in range(len(given.slices))
    )
    return LimitGrant(held.pod.uid, held.container.name, devices, flags)


def _grant_gpu(
    held: ContainerGpus, given: ContainerAllocation, at: int, context: MiB
) -> DeviceGrant:
    piece, gpu = given.slices[at], held.gpus[at]
    hooked = given.isolation is not None and given.isolation.compute is IsolationTier.HOOK
    paced = hooked and 0 < piece.cores < FULL
    cores = piece.cores * _HUNDREDTHS if paced else 0
    limit = max(cores, (given.ceiling or 0) * _HUNDREDTHS) if paced else 0
    limited = piece.cores < FULL
    return DeviceGrant(
        uuid=gpu.uuid,
        memory_bytes=piece.memory * BYTES_PER_MIB if limited else 0,
        cores=cores,
        ceiling=cores,
        limit=limit,
        context_bytes=context * BYTES_PER_MIB,
        gpu_bytes=gpu.memory * BYTES_PER_MIB,
        priority=held.pod.priority,
        weight=cores,
    )


def grant_part(gpu: Gpu, piece: Slice, context: MiB) -> DeviceGrant:
    """What a part of a GPU grants that is not lent to others; compute in full is not paced."""
    cores = piece.cores * _HUNDREDTHS if piece.cores < FULL else 0
    limited = piece.memory < gpu.memory
    return DeviceGrant(
        uuid=gpu.uuid,
        memory_bytes=piece.memory * BYTES_PER_MIB if limited else 0,
        cores=cores,
        ceiling=cores,
        limit=cores,
        context_bytes=context * BYTES_PER_MIB,
        gpu_bytes=gpu.memory * BYTES_PER_MIB,
        weight=cores,
    )


class VcudaProbe:
    """Whether gpu-manager's copy of the driver holds its own limiter library.

    Drivers are large, so a file is read again only when it has changed.
    """

    def __init__(self, drivers: Path) -> None:
        self._paths = tuple(drivers / place for place in _VCUDA_PLACES)
        self._known: dict[Path, tuple[tuple[int, ...], bool]] = {}

    def __call__(self) -> bool:
        return any(map(self._holds, self._paths))

    def _holds(self, path: Path) -> bool:
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = self._known[path] = stamp, _VCUDA_MARK in path.read_bytes()
        except OSError:
            return False
        return known[1]


@dataclass(frozen=True, slots=True)
class LimitInjector:
    """Adds limits to what containers receive, and writes their files before the start."""

    folders: LimitFolders
    library: LimiterLibrary
    vcuda: Callable[[], bool] = lambda: False
    """Whether gpu-manager's own library limits the containers that mount its driver."""
    mps_pipe: Path | None = None
    """The pipe folder of the node's MPS daemon, if there is one."""
    driver: DriverLimits | None = None
    """What sets the driver's own limits, where they were tested on the node."""
    settings: LimitSettings = USUAL
    """What is taken to be so of the node's driver."""

    def extend(self, held: ContainerGpus, injection: Injection) -> Injection:
        """What the container receives, with the files of its limits where some were promised."""
        promised = self.promised(held)
        if promised is None:
            return injection
        env = {**injection.env, ISOLATION_ENV: str(promised)}
        library = self._library_for(held, promised, injection)
        if library is None:
            return replace(injection, env=env)
        if IsolationTier.MPS in (promised.memory, promised.compute):
            injection = self._join_mps(held, injection)
            env = {**injection.env, **env}
        mounts = self.mount_files(held.pod.uid, held.container.name, library)
        return replace(injection, env=env, mounts=(*injection.mounts, *mounts))

    def mount_files(self, uid: str, name: str, library: InstalledLibrary) -> tuple[HostMount, ...]:
        """The library, what it grants, and where it notes what is used."""
        folder = self.folders.folder(uid, name)
        return (
            HostMount(str(library.preload), PRELOAD_INSIDE),
            HostMount(str(library.path), INSIDE),
            HostMount(str(folder / GRANT), f"{LIMITS_INSIDE}/{GRANT}"),
            HostMount(str(folder / USAGE), f"{LIMITS_INSIDE}/{USAGE}", writable=True),
        )

    def _join_mps(self, held: ContainerGpus, injection: Injection) -> Injection:
        """What makes the container's processes clients of the MPS daemon, each with its limits."""
        pipe = self.mps_pipe
        if pipe is None:
            raise LimitRefusedError(
                f"container {held.container.name} was promised isolation by MPS, "
                "and this node has no MPS daemon any more; delete the pod to place it again"
            )
        memory = ",".join(
            f"{at}={piece.memory}M" for at, piece in enumerate(held.slices) if piece.memory
        )
        env = {**injection.env, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        if memory:
            env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = memory
        if cores := max(piece.cores for piece in held.slices):
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(cores)
        mounts = (
            HostMount(str(pipe), str(pipe), writable=True),
            HostMount(_SHARED_MEMORY, _SHARED_MEMORY, writable=True),
        )
        return replace(injection, env=env, mounts=(*injection.mounts, *mounts))

    def prepare(self, held: ContainerGpus, injection: Injection) -> None:
        """Write the files that `extend` mounts, and have the driver keep what it is to keep."""
        promised = self.promised(held)
        if not promised:
            return
        if promised.memory is IsolationTier.DRIVER:
            self._hold_by_driver(held)
        library = self._library_for(held, promised, injection)
        if library is not None:
            grant = build_grant(held, self.settings)
            assert grant is not None
            self.folders.write(grant, library.version)

    def _hold_by_driver(self, held: ContainerGpus) -> None:
        if self.driver is None:
            raise LimitRefusedError(
                f"container {held.container.name} was promised that the driver limits its memory, "
                "which this node no longer offers (--driver-tier); delete the pod to place it again"
            )
        self.driver.hold(held)

    def mount_late(self, held: ContainerGpus, injection: Injection, name: str) -> Injection:
        """The same, with the container's folder by a name that is linked to it before the start."""
        own = f"{self.folders.folder(held.pod.uid, held.container.name)}/"
        late = f"{self.folders.root / BY_UNITS / name}/"
        mounts = tuple(
            replace(each, source=late + each.source.removeprefix(own))
            if each.source.startswith(own)
            else each
            for each in injection.mounts
        )
        return replace(injection, mounts=mounts)

    def sweep(self) -> None:
        """Remove versions of the library that no container was given."""
        self.library.sweep(self.folders.libraries())

    def promised(self, held: ContainerGpus) -> Isolation | None:
        """The isolation in the container's record; None for whole GPUs and older records."""
        found = (each for each in held.allocation.containers if each.name == held.container.name)
        return next((each.isolation for each in found), None)

    def _by_vcuda(self, injection: Injection) -> bool:
        return injection.limit is not None and not injection.limit.whole and self.vcuda()

    def _library_for(
        self, held: ContainerGpus, promised: Isolation, injection: Injection
    ) -> InstalledLibrary | None:
        """The library that keeps the promise; None where another's does, or the driver alone."""
        installed = self.library.installed
        by_driver = promised == Isolation(IsolationTier.DRIVER)
        if not promised or self._by_vcuda(injection) or (by_driver and installed is None):
            return None
        if installed is None:
            raise LimitRefusedError(
                f"container {held.container.name} was promised isolation {promised}, "
                f"which this node no longer offers: {self.library.problem}; "
                "delete the pod to place it again"
            )
        return installed
