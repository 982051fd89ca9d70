"""Single queries to NVML about one GPU, each tolerant of what a GPU does not support.

A GPU that has stopped answering raises `NvmlSilentError`; a library that has raises `DriverError`.
"""

import ctypes
import re
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pynvml

from slicewise.model import BYTES_PER_MIB, Gpu, MiB, Percent
from slicewise.nvml.driver import DriverError, GpuDevice, Load, Process
from slicewise.nvml.known_gpus import FARTHEST, REMAPPING_FAILED, LinkDistance, Pair, recovery_words

Handle = Any

_NUMA_WORDS: Final = 4
_WORD_BITS: Final = 64
_NVIDIA: Final = "0x10de"
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
# The library itself has let go of the driver; no GPU can be asked before it is opened again.
DEAD: Final = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
_UNANSWERED: Final = frozenset(
    (
        # The bindings raise success itself when a GPU has no samples.
        pynvml.NVML_SUCCESS,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        # A list that grew between asking for its length and for itself.
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
    )
)

_SWITCH: Final = "switch"
_NO_LIMIT: Final = (1 << 64) - 1


class NvmlSilentError(Exception):
    """This GPU does not answer; the others may."""


def ask(question: Callable[..., Any], *details: Any) -> Any:
    """The answer, or None when the GPU or its driver cannot tell."""
    try:
        return question(*details)
    except pynvml.NVMLError as error:
        if error.value in _UNANSWERED:
            return None
        if error.value in DEAD:
            raise DriverError(
                f"NVML stopped answering: {error}; it is opened again at the next question"
            ) from error
        raise NvmlSilentError(str(error)) from error


def insist(question: Callable[..., Any], *details: Any) -> Any:
    """The answer to what every GPU can tell."""
    answer = ask(question, *details)
    if answer is None:
        raise NvmlSilentError(f"{question.__name__} has no answer")
    return answer


def read_gpu(index: int, handle: Handle, sysfs: Path) -> GpuDevice:
    """Everything fixed about a GPU, and whether it needs something before it can be used."""
    bus = text(insist(pynvml.nvmlDeviceGetPciInfo, handle).busId)
    folder = _find_folder(bus, sysfs)
    mig = ask(pynvml.nvmlDeviceGetMigMode, handle)
    capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    trouble = _read_trouble(handle)
    gpu = Gpu(
        index,
        read_uuid(handle),
        text(insist(pynvml.nvmlDeviceGetName, handle)),
        MiB(read_memory(handle).total // BYTES_PER_MIB),
        insist(pynvml.nvmlDeviceGetMinorNumber, handle),
        numa=_read_numa(handle, folder),
        healthy=not trouble,
        mig=mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
    )
    return GpuDevice(
        gpu,
        bus,
        brand=ask(pynvml.nvmlDeviceGetBrand, handle) or 0,
        capability=0 if capability is None else int(f"{capability[0]}{capability[1]}"),
        trouble=trouble,
        pcie_root=_read_root(folder),
    )


def read_uuid(handle: Handle) -> str:
    return text(insist(pynvml.nvmlDeviceGetUUID, handle))


def read_load(handle: Handle, window_seconds: float) -> Load:
    """What the GPU does, its processes by the samples of the last moments."""
    memory = read_memory(handle)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Load(
        MiB(memory.used // BYTES_PER_MIB),
        Percent(0 if rates is None else min(100, rates.gpu)),
        _read_processes(handle, window_seconds),
        ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        ask(pynvml.nvmlDeviceGetPowerUsage, handle),
    )


def read_memory(handle: Handle) -> Any:
    """Bytes in total and in use, without what the driver reserves for itself where it says."""
    known = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    # Older drivers count their own reserve as used.
    return known or insist(pynvml.nvmlDeviceGetMemoryInfo, handle)


def text(value: bytes | str) -> str:
    """Text as NVML's bindings give it, some fields still in bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def address(handle: Handle) -> int:
    """Where a handle points: two handles of one GPU are equal in this alone."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _read_processes(handle: Handle, window_seconds: float) -> tuple[Process, ...]:
    memory: dict[int, int] = {}
    for question in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for process in ask(question, handle) or ():
            # A process that computes and draws is in both lists with the same memory.
            used = process.usedGpuMemory or 0
            memory[process.pid] = max(memory.get(process.pid, 0), used)
    if not memory:
        return ()
    busy = read_compute(handle, window_seconds)
    return tuple(
        Process(pid, MiB(memory[pid] // BYTES_PER_MIB), Percent(busy.get(pid, 0)))
        for pid in sorted(memory)
    )


def limit_memory(handle: Handle, cgroup: Path, limit: int | None) -> int | None:
    """Set the hard and the soft limit of a cgroup to this, or clear them; what is then in force.

    Raises DriverError for what the driver refuses, which older ones do for everything.
    """
    name = str(cgroup).encode()
    soft, hard = (0, _NO_LIMIT) if limit is None else (limit, limit)
    try:
        wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(name, soft, hard)
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, wanted)
        found = pynvml.c_nvmlGetMemoryLimits_v1_t(name)
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, found)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise DriverError(f"memory limits by cgroup: {error}") from error
    return None if found.hardLimit == _NO_LIMIT else int(found.hardLimit)


def read_compute(handle: Handle, window_seconds: float) -> dict[int, int]:
    """The newest percentage of every process that was sampled in these seconds."""
    # Asked for by age and not by the last answer, so that two readers do not starve each other.
    since = int((time.time() - window_seconds) * 1_000_000)
    return _latest(ask(pynvml.nvmlDeviceGetProcessUtilization, handle, since) or ())


def _latest(samples: Iterable[Any]) -> dict[int, int]:
    newest: dict[int, tuple[int, int]] = {}
    for sample in samples:
        # Drivers pad the list with samples of nobody, and some report absurd percentages.
        if sample.pid and sample.smUtil <= 100:
            found = (sample.timeStamp, sample.smUtil)
            newest[sample.pid] = max(newest.get(sample.pid, found), found)
    return {pid: cores for pid, (_, cores) in newest.items()}


def _read_trouble(handle: Handle) -> str:
    fields = ask(
        pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    )
    if fields is not None and fields[0].nvmlReturn == pynvml.NVML_SUCCESS:
        words = recovery_words(fields[0].value.uiVal)
        if words:
            return words
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    return REMAPPING_FAILED if rows is not None and rows[3] else ""


def _find_folder(bus: str, sysfs: Path) -> Path | None:
    """What the kernel knows of the GPU; None when it knows none there."""
    domain, _, rest = bus.lower().partition(":")
    folder = sysfs / "bus" / "pci" / "devices" / f"{domain[-4:]}:{rest}"
    try:
        return folder.resolve() if (folder / "vendor").read_text().strip() == _NVIDIA else None
    except OSError:
        return None


def _read_root(folder: Path | None) -> str:
    """The PCIe root complex that a device's folder stands below."""
    parts = () if folder is None else folder.parts
    return next((each for each in parts if _ROOT.fullmatch(each)), "")


def _read_numa(handle: Handle, folder: Path | None) -> int | None:
    # NVML's own NUMA question is about GPUs that are NUMA nodes themselves, so it is not asked.
    try:
        if folder is not None:
            number = int((folder / "numa_node").read_text())
            return number if number >= 0 else None
    except (OSError, ValueError):
        pass
    words = ask(
        pynvml.nvmlDeviceGetMemoryAffinity, handle, _NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE
    )
    bits = [
        at * _WORD_BITS + bit
        for at, word in enumerate(words or ())
        for bit in range(_WORD_BITS)
        if word >> bit & 1
    ]
    return bits[0] if len(bits) == 1 else None


def read_pairs(handles: Mapping[str, Handle], buses: Mapping[str, str]) -> dict[Pair, LinkDistance]:
    """The distance between every two of these GPUs, by UUID."""
    by_bus = {_plain(bus): uuid for uuid, bus in buses.items()}
    lanes = {uuid: _count_lanes(handle, by_bus) for uuid, handle in handles.items()}
    pairs = {}
    for one, other in combinations(handles, 2):
        direct = max(lanes[one].get(other, 0), lanes[other].get(one, 0))
        switched = min(lanes[one].get(_SWITCH, 0), lanes[other].get(_SWITCH, 0))
        pairs[Pair((one, other))] = LinkDistance(
            direct + switched, _read_level(handles[one], handles[other])
        )
    return pairs


def _count_lanes(handle: Handle, by_bus: Mapping[str, str]) -> dict[str, int]:
    """Active NVLink lanes by what they lead to: a GPU's UUID, or a switch."""
    lanes: dict[str, int] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break
            if state:
                end = _follow(handle, link, by_bus)
                if end is not None:
                    lanes[end] = lanes.get(end, 0) + 1
        except NvmlSilentError:
            continue
    return lanes


def _follow(handle: Handle, link: int, by_bus: Mapping[str, str]) -> str | None:
    remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    if remote is not None:
        end = by_bus.get(_plain(text(remote.busId)))
        if end is not None:
            return end
    kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    return _SWITCH if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH else None


def _read_level(one: Handle, other: Handle) -> int:
    try:
        level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    except NvmlSilentError:
        return FARTHEST
    return FARTHEST if level is None else int(level)


def _plain(bus: str) -> str:
    # NVML writes a PCI domain with four digits in some structures and eight in others.
    return bus.upper()[-12:]
