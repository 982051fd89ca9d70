"""A driver without hardware: a file describes the GPUs, and rewriting it changes them at once.

A file that cannot be read while running is logged, and what it said before goes on counting.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import structlog

from slicewise.nvml.description import Description, read_description
from slicewise.nvml.driver import ECC, LOST, XID, DriverError, GpuFault, Hardware, Load
from slicewise.nvml.known_gpus import DriverReading, KnownGpus

_log = structlog.get_logger(__name__)
_LOOK_EVERY: Final = 0.1

Stamp = tuple[int, int, int]


def read_sample() -> bytes:
    """The description that is used when no file is named."""
    return (files("slicewise.nvml") / "sample.yaml").read_bytes()


class SimulatedDriver:
    """The driver that a description file stands for; without a path, the bundled sample."""

    def __init__(self, path: Path | None = None, *, name: str = "") -> None:
        self._path = path
        self._name = name
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._roster = KnownGpus()
        self._stamp: Stamp | None = None
        self._pending: list[GpuFault] = []
        self.problem: str | None = None
        if path is None:
            self._now = read_description("sample.yaml", read_sample(), name)
        else:
            self._stamp, self._now = self._read(path)

    def hardware(self) -> Hardware:
        """The GPUs that are described, and those that were and are lost."""
        with self._lock:
            now = self._answer()
            found = tuple(each.device for each in now.gpus if not each.lost)
            return self._roster.complete(DriverReading(found, now.pairs, now.driver, now.cuda))

    def loads(self) -> Mapping[str, Load]:
        """The described load of every GPU that is not lost."""
        with self._lock:
            now = self._answer()
            return {each.device.gpu.uuid: each.load for each in now.gpus if not each.lost}

    def compute(self) -> Mapping[str, Mapping[int, int]]:
        """The described use of every process."""
        return {
            uuid: {process.pid: process.cores for process in load.processes}
            for uuid, load in self.loads().items()
        }

    def wait_faults(self, seconds: float) -> Sequence[GpuFault]:
        """Faults whose sequence number appeared in the file, and GPUs that became lost."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                self._answer()
                faults, self._pending = self._pending, []
            left = deadline - time.monotonic()
            if faults or left <= 0 or self._closed.wait(min(left, _LOOK_EVERY)):
                return faults

    def close(self) -> None:
        """Nothing is held; whoever waits for faults returns."""
        self._closed.set()

    def _answer(self) -> Description:
        self._refresh()
        if self._now.unavailable:
            raise DriverError(
                f"the simulated driver does not answer: {self._path} says unavailable: true; "
                "take that out"
            )
        return self._now

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            if _stamp(self._path) == self._stamp:
                return
            stamp, now = self._read(self._path)
        except (OSError, DriverError) as error:
            if str(error) != self.problem:
                self.problem = str(error)
                _log.error("description unreadable, the last good one stays", error=str(error))
            return
        if self.problem is not None:
            _log.info("description readable again", path=str(self._path))
        self.problem = None
        self._pending += _compare(self._now, now)
        self._stamp, self._now = stamp, now

    def _read(self, path: Path) -> tuple[Stamp, Description]:
        try:
            # The stamp is taken first: a change in between is then seen at the next look.
            stamp = _stamp(path)
            text = path.read_bytes()
        except OSError as error:
            raise DriverError(
                f"cannot read {path}: {error.strerror}; name a file that describes GPUs"
            ) from error
        return stamp, read_description(str(path), text, self._name)


def _stamp(path: Path) -> Stamp:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _compare(before: Description, now: Description) -> list[GpuFault]:
    known = {fault.sequence for fault in before.faults}
    faults = [
        GpuFault(fault.uuid, ECC, detail="double-bit ECC error")
        if fault.xid is None
        else GpuFault(fault.uuid, XID, fault.xid)
        for fault in sorted(now.faults, key=lambda fault: fault.sequence)
        if fault.sequence not in known
    ]
    answering = {each.device.gpu.uuid for each in before.gpus if not each.lost}
    still = {each.device.gpu.uuid for each in now.gpus if not each.lost}
    faults += [
        GpuFault(uuid, LOST, detail="no longer answers") for uuid in sorted(answering - still)
    ]
    return faults
