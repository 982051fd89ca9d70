"""The driver through NVIDIA's own bindings.

NVML that died is opened again by the next question, and is closed only while nobody is inside.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pynvml
import structlog

from slicewise.model import count
from slicewise.nvml.driver import DriverError, GpuDevice, GpuFault, Hardware, Load
from slicewise.nvml.known_gpus import DriverReading, KnownGpus
from slicewise.nvml.queries import (
    Handle,
    NvmlSilentError,
    ask,
    insist,
    limit_memory,
    read_compute,
    read_gpu,
    read_load,
    read_uuid,
    text,
)
from slicewise.nvml.session import NvmlSession

_log = structlog.get_logger(__name__)
# The longest that a wait for events keeps others from closing NVML.
_SLICE_SECONDS: Final = 0.5
# A GPU that was reset answers only those who open NVML after it.
_REOPEN_EVERY: Final = 60.0


class LibraryDriver:
    """NVML as a driver; `library` names a file to load instead of the system's."""

    def __init__(
        self,
        library: Path | None = None,
        *,
        sysfs: Path = Path("/sys"),
        window_seconds: float = 1.0,
    ) -> None:
        self._library = library
        self._sysfs = sysfs
        self._window_seconds = window_seconds
        self._state = threading.Condition()
        self._session: NvmlSession | None = None
        self._stale = False
        self._inside = 0
        self._closed = False
        self._turn = threading.Lock()
        self._roster = KnownGpus()

    def hardware(self) -> Hardware:
        """The GPUs that answer, and those that did once and are lost."""
        with self._enter() as session:
            handles, silent = session.list_handles()
            found: dict[str, tuple[GpuDevice, Handle]] = {}
            for index, handle in handles:
                try:
                    device = read_gpu(index, handle, self._sysfs)
                except NvmlSilentError as error:
                    _log.debug("GPU does not answer", index=index, error=str(error))
                    silent += 1
                    continue
                found[device.gpu.uuid] = (device, handle)
            if silent and not found:
                raise NvmlSilentError(f"none of {count(silent, 'GPU')} answers")
            session.watch((uuid, handle) for uuid, (_, handle) in found.items())
            if silent and time.monotonic() - session.opened > _REOPEN_EVERY:
                self._stale = True
            reading = DriverReading(
                tuple(device for device, _ in found.values()),
                session.read_links(
                    {uuid: handle for uuid, (_, handle) in found.items()},
                    {uuid: device.bus for uuid, (device, _) in found.items()},
                ),
                text(insist(pynvml.nvmlSystemGetDriverVersion)),
                _read_cuda(),
            )
            with self._state:
                return self._roster.complete(reading)

    def loads(self) -> Mapping[str, Load]:
        """The load of every GPU that answers."""
        with self._enter() as session:
            loads = {}
            for _, handle in session.list_handles()[0]:
                try:
                    loads[read_uuid(handle)] = read_load(handle, self._window_seconds)
                except NvmlSilentError:
                    continue
            return loads

    def compute(self) -> Mapping[str, Mapping[int, int]]:
        """What processes used of each GPU that answers, by the samples of the last second."""
        with self._enter() as session:
            found = {}
            for _, handle in session.list_handles()[0]:
                try:
                    found[read_uuid(handle)] = read_compute(handle, self._window_seconds)
                except NvmlSilentError:
                    continue
            return found

    def limit_memory(self, uuid: str, cgroup: Path, limit: int | None) -> int | None:
        """Set or clear the limit of a cgroup on a GPU, and return what is then in force."""
        with self._enter() as session:
            for _, handle in session.list_handles()[0]:
                if read_uuid(handle) == uuid:
                    return limit_memory(handle, cgroup, limit)
        raise DriverError(f"{uuid} does not answer")

    def wait_faults(self, seconds: float) -> Sequence[GpuFault]:
        """Critical XIDs, double-bit ECC errors and GPUs that stopped answering."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            with self._turn, self._enter() as session:
                session.watch_all()
                faults = session.await_event(min(left, _SLICE_SECONDS))
                faults += session.find_lost()
            if faults or self._closed or time.monotonic() >= deadline:
                return faults

    def close(self) -> None:
        """Close NVML once nobody is inside it; what is asked later is refused."""
        with self._state:
            self._closed = True
            self._shut()

    @contextmanager
    def _enter(self) -> Iterator[NvmlSession]:
        session = self._open()
        try:
            yield session
        except NvmlSilentError as error:
            self._stale = True
            raise DriverError(
                f"NVML does not answer: {error}; see whether `nvidia-smi` works on this node"
            ) from error
        except DriverError:
            self._stale = True
            raise
        finally:
            with self._state:
                self._inside -= 1
                self._state.notify_all()

    def _open(self) -> NvmlSession:
        with self._state:
            while self._stale and self._session is not None:
                self._shut()
            if self._closed:
                raise DriverError("NVML was closed; make a new driver to ask again")
            if self._session is None:
                self._session = NvmlSession(self._library)
                self._stale = False
                _log.info("NVML opened")
            self._inside += 1
            return self._session

    def _shut(self) -> None:
        self._state.wait_for(lambda: self._inside == 0)
        if self._session is not None:
            self._session.close()
            self._session = None


def _read_cuda() -> str:
    version = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return "" if version is None else f"{version // 1000}.{version % 1000 // 10}"
