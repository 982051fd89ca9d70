"""NVML while it is open: its event set, the GPUs it watches, and the faults it reports."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pynvml
import structlog

from slicewise.nvml.driver import ECC, LOST, XID, DriverError, GpuFault
from slicewise.nvml.known_gpus import LinkDistance, Pair
from slicewise.nvml.queries import (
    Handle,
    NvmlSilentError,
    address,
    ask,
    insist,
    read_memory,
    read_pairs,
    read_uuid,
)

_log = structlog.get_logger(__name__)
_EVENTS: Final = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
_LINKS_EVERY: Final = 60.0
_LOOK_EVERY: Final = 2.0
_ADVICE: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "install the NVIDIA driver, mount its libraries into the agent's container, "
        "or describe GPUs in a file"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the kernel module, as with `modprobe nvidia`",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced while its kernel module stayed loaded: reboot the node"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "let the agent use /dev/nvidiactl: run it privileged",
}
_OTHER_ADVICE: Final = "see whether `nvidia-smi` works on this node"


class NvmlSession:
    """An open NVML; it is used by any thread, and closed only when none is inside."""

    def __init__(self, library: Path | None) -> None:
        _load(library)
        self.opened = time.monotonic()
        self._lock = threading.Lock()
        self._events: Any = None
        self._watched: dict[str, Handle] = {}
        self._registered: set[str] = set()
        self._suspicious = False
        self._looked = 0.0
        self._links: tuple[frozenset[str], float, dict[Pair, LinkDistance]] | None = None
        self._renew()

    def list_handles(self) -> tuple[list[tuple[int, Handle]], int]:
        """The handles of the GPUs with their indexes, and how many GPUs gave none."""
        handles, silent = [], 0
        for index in range(insist(pynvml.nvmlDeviceGetCount)):
            try:
                handles.append((index, insist(pynvml.nvmlDeviceGetHandleByIndex, index)))
            except NvmlSilentError:
                silent += 1
        return handles, silent

    def watch(self, gpus: Iterable[tuple[str, Handle]]) -> None:
        """Get these GPUs' events from now on."""
        with self._lock:
            for uuid, handle in gpus:
                self._watched[uuid] = handle
                self._register(uuid, handle)

    def watch_all(self) -> None:
        """Watch every GPU, unless that has been done."""
        if not self._watched:
            for _, handle in self.list_handles()[0]:
                try:
                    self.watch([(read_uuid(handle), handle)])
                except NvmlSilentError:
                    continue

    def await_event(self, seconds: float) -> list[GpuFault]:
        """The fault that is reported within so many seconds, if any; for one thread at a time."""
        if self._events is None or not self._registered:
            time.sleep(seconds)
            return []
        try:
            event = ask(pynvml.nvmlEventSetWait, self._events, round(seconds * 1000))
        except NvmlSilentError as error:
            if _value(error) != pynvml.NVML_ERROR_TIMEOUT:
                # A lost GPU ends the wait at once; without a pause the caller would spin.
                _log.debug("waiting for events failed", error=str(error))
                self._suspicious = True
                time.sleep(seconds)
            return []
        return [] if event is None else [self._read_event(event)]

    def find_lost(self) -> list[GpuFault]:
        """The GPUs that answered at the last look and do not now; for one thread at a time."""
        now = time.monotonic()
        if not self._suspicious and now - self._looked < _LOOK_EVERY:
            return []
        self._suspicious, self._looked = False, now
        with self._lock:
            lost = [uuid for uuid in self._registered if not _answers(self._watched[uuid])]
        if not lost:
            return []
        faults = []
        # NVML may tell of nothing else while a lost GPU is in the set, so the set is made again.
        while events := self.await_event(0):
            faults += events
        with self._lock:
            kept = self._registered - set(lost)
            self._renew()
            for uuid in kept:
                self._register(uuid, self._watched[uuid])
        for uuid in lost:
            _log.warning("GPU lost", gpu=uuid)
        return faults + [GpuFault(uuid, LOST, detail="no longer answers") for uuid in sorted(lost)]

    def read_links(
        self, handles: dict[str, Handle], buses: dict[str, str]
    ) -> dict[Pair, LinkDistance]:
        """How near these GPUs are; links seldom change, so they are read once a minute."""
        now, gpus = time.monotonic(), frozenset(handles)
        if self._links is None or self._links[0] != gpus or now - self._links[1] > _LINKS_EVERY:
            self._links = (gpus, now, read_pairs(handles, buses))
        return self._links[2]

    def close(self) -> None:
        """Release everything, as far as NVML still answers."""
        ends: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(pynvml.nvmlShutdown, ())]
        if self._events is not None:
            ends.insert(0, (pynvml.nvmlEventSetFree, (self._events,)))
        for end, details in ends:
            try:
                end(*details)
            except pynvml.NVMLError as error:
                _log.debug("closing NVML", error=str(error))

    def _renew(self) -> None:
        old, self._events, self._registered = self._events, None, set()
        try:
            if old is not None:
                ask(pynvml.nvmlEventSetFree, old)
            self._events = ask(pynvml.nvmlEventSetCreate)
        except NvmlSilentError as error:
            _log.warning("NVML offers no events, lost GPUs alone will be noticed", error=str(error))

    def _register(self, uuid: str, handle: Handle) -> None:
        if uuid in self._registered:
            return
        self._registered.add(uuid)
        try:
            wanted = (ask(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & _EVENTS
            if wanted and self._events is not None:
                ask(pynvml.nvmlDeviceRegisterEvents, handle, wanted, self._events)
        except NvmlSilentError as error:
            _log.warning("GPU reports no faults by events", gpu=uuid, error=str(error))

    def _read_event(self, event: Any) -> GpuFault:
        uuid = self._name(event.device)
        if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
            return GpuFault(uuid, XID, int(event.eventData))
        return GpuFault(uuid, ECC, detail="double-bit ECC error")

    def _name(self, device: Handle) -> str | None:
        where = address(device)
        return next(
            (uuid for uuid, handle in self._watched.items() if address(handle) == where), None
        )


def _load(library: Path | None) -> None:
    try:
        if library is not None:
            # The bindings ask for the library by its soname, which finds what is loaded already.
            ctypes.CDLL(str(library))
        pynvml.nvmlInit()
    except OSError as error:
        raise DriverError(
            f"cannot load {library}: {error}; name NVIDIA's libnvidia-ml.so.1"
        ) from error
    except pynvml.NVMLError as error:
        advice = _ADVICE.get(error.value, _OTHER_ADVICE)
        raise DriverError(f"cannot open libnvidia-ml.so.1: {error}; {advice}") from error


def _answers(handle: Handle) -> bool:
    try:
        read_memory(handle)
    except NvmlSilentError:
        return False
    return True


def _value(error: NvmlSilentError) -> int | None:
    cause = error.__cause__
    return cause.value if isinstance(cause, pynvml.NVMLError) else None
