"""Programs in containers of the demo that share one GPU, held to their limits by the limiter.

The GPU is the CUDA stand-in's; library, grants and the agent's loop are those of a real node. The
libraries are built from the source tree, so a demo without it, or without a compiler, says so.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slicewise.model import Gpu, Pod, Slice, SlicewiseError
from slicewise.nodeagent.limits.control import PERIOD_SECONDS
from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.grant_file import DeviceGrant, GrantFlags, LimitGrant
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise.nvml.library import LibraryDriver
from slicewise_playground.demo.allocation_check import AllocationCheck

_MIB: Final = 1 << 20
_FLAGS: Final = GrantFlags(1 | 2 | 4 | 8 | 16)
_OUT_OF_MEMORY: Final = 2
_PIECE_MIB: Final = 64
_MODEST_MIB: Final = 1024
# Looks in a row at which all keep to their shares.
_KEPT: Final = 15
_LIBRARIES: Final = {
    "cuda": "libcuda.so.1",
    "nvml": "libnvidia-ml.so.1",
    "limiter": "libslicewise-limit.so",
}


class LimitsNotShownError(SlicewiseError):
    """Why the demo cannot show limits here."""


@dataclass(frozen=True, slots=True)
class LimitedShare:
    """One container's share of the GPU that programs run on."""

    pod: Pod
    container: str
    gpu: Gpu
    piece: Slice

    @property
    def name(self) -> str:
        """Its pod as people write it."""
        return f"{self.pod.namespace}/{self.pod.name}"


@dataclass(frozen=True, slots=True)
class ProgramUse:
    """What one program was promised, told and refused, and what it has of the GPU now."""

    share: LimitedShare
    seen_mib: int
    """The GPU's size as the program sees it."""
    held_mib: int
    refused: bool
    cores: int
    """Percent of the GPU's time in the last second, by the driver's own figures."""

    @property
    def stopped(self) -> bool:
        """Whether it has all of its memory and got no more."""
        most = self.share.piece.memory
        return self.refused and most - _PIECE_MIB < self.held_mib <= most == self.seen_mib

    @property
    def paced(self) -> bool:
        """Whether it, which never pauses, has its part of the GPU and no more.

        A busy machine may let it launch too late for all of its part.
        """
        promised = self.share.piece.cores
        return promised // 2 <= self.cores <= promised + promised // 10 + 2

    @property
    def broken(self) -> str:
        """How it is not held to what was promised; empty when it is."""
        promised = self.share.piece
        if not self.paced:
            return f"has {self.cores} percent of a GPU's time and was promised {promised.cores}"
        if promised.memory and not self.stopped:
            return f"has {self.held_mib} MiB of a GPU and was promised {promised.memory}"
        return ""


def find_shares(check: AllocationCheck) -> tuple[LimitedShare, ...]:
    """Two containers of different pods with parts of one GPU of a node that our agent serves.

    One at least has a limit of memory; of several GPUs the first is taken.
    """
    found: dict[tuple[str, int], list[LimitedShare]] = {}
    for pod in check.pods:
        node = check.nodes.get(pod.node or "")
        allocation = None if node is None or not node.agent else check.check_pod(pod).allocation
        if node is None or allocation is None:
            continue
        for each in allocation.containers:
            for piece in each.slices:
                if 0 < piece.cores < 100:
                    gpu = next(gpu for gpu in node.gpus if gpu.index == piece.gpu)
                    shares = found.setdefault((node.name, piece.gpu), [])
                    if pod.uid not in {share.pod.uid for share in shares}:
                        shares.append(LimitedShare(pod, each.name, gpu, piece))
    for _, shares in sorted(found.items()):
        if len(shares) > 1 and any(each.piece.memory for each in shares):
            return tuple(shares[:2])
    raise LimitsNotShownError("no two pods share a GPU of a node that our agent serves")


def build_libraries() -> Mapping[str, Path]:
    """The stand-ins and the limiter, built where their sources are newer."""
    root = Path(__file__).resolve().parents[5]
    missing = [each for each in ("make", os.environ.get("CC", "cc")) if shutil.which(each) is None]
    if missing or not (root / "native" / "limiter").is_dir():
        lacking = f"{' and '.join(missing)} on PATH" if missing else "the folder native"
        raise LimitsNotShownError(f"the limiter cannot be built without {lacking}")
    for name in _LIBRARIES:
        command = ["make", "-s", "-C", str(root / "native" / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LimitsNotShownError(f"native/{name} cannot be built: {done.stderr.strip()}")
    return {name: root / "out" / "native" / name / file for name, file in _LIBRARIES.items()}


class LimitedPrograms:
    """The running programs; their uses are read again every time they are asked for."""

    def __init__(
        self,
        driver: LibraryDriver,
        started: Sequence[tuple[LimitedShare, "subprocess.Popen[str]", str]],
    ) -> None:
        self._driver = driver
        self._started = started

    def read(self) -> tuple[ProgramUse, ...]:
        """Every program as it is now."""
        percents = next(iter(self._driver.compute().values()), {})
        return tuple(
            ProgramUse(share, *_read_line(line), percents.get(process.pid, 0))
            for share, process, line in self._started
        )

    def wait(self, seconds: float, stop: threading.Event) -> tuple[ProgramUse, ...]:
        """Their uses once all have kept to their shares for a while, or after so long."""
        end, kept = time.monotonic() + seconds, 0
        while True:
            uses = self.read()
            kept = kept + 1 if all(each.paced for each in uses) else 0
            if kept == _KEPT or time.monotonic() > end or stop.wait(PERIOD_SECONDS):
                return uses


def _read_line(line: str) -> tuple[int, int, bool]:
    try:
        seen, held, answer = map(int, line.split())
    except ValueError as error:
        raise LimitsNotShownError(f"a program printed {line!r}: expected numbers") from error
    return seen, held, answer == _OUT_OF_MEMORY


@contextlib.contextmanager
def run_programs(shares: Sequence[LimitedShare], folder: Path) -> Iterator[LimitedPrograms]:
    """A program in each share, with the agent's loop beside them."""
    libraries = build_libraries()
    name = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, shares[0].gpu.uuid)}"
    machine, described, folders = folder / "cuda", folder / "nvml", LimitFolders(folder / "limits")
    size = shares[0].gpu.memory
    machine.write_text(f"gpu {name} {size}\nkernel demo 2000 20\nend\n")
    described.write_text(
        f"driver 615.1\ncuda 13040\ntenants {machine}.state\n"
        f"gpu 0 0 {name} 00000000:01:00.0\nname {shares[0].gpu.model}\nmemory {size} 0\n"
        "state 0 0 0\nend\n"
    )
    os.environ["SLICEWISE_NVML_FILE"] = str(described)
    driver = LibraryDriver(libraries["nvml"], sysfs=folder)
    with contextlib.ExitStack() as stack:
        stack.callback(driver.close)
        started = []
        for share in shares:
            folders.write(_grant(share, name), "library")
            limits = folders.folder(share.pod.uid, share.container)
            # A program wants twice its memory, and little where that is not limited.
            wanted = 2 * share.piece.memory or _MODEST_MIB
            process = stack.enter_context(_start(libraries, machine, limits, wanted))
            assert process.stdout is not None
            started.append((share, process, process.stdout.readline()))
        stack.enter_context(_feeding(LimitFeed(folders, driver)))
        yield LimitedPrograms(driver, started)


def _grant(share: LimitedShare, name: str) -> LimitGrant:
    cores = share.piece.cores * 100
    device = DeviceGrant(
        uuid=name,
        memory_bytes=share.piece.memory * _MIB,
        cores=cores,
        ceiling=cores,
        limit=cores,
        gpu_bytes=share.gpu.memory * _MIB,
        weight=share.piece.cores,
    )
    return LimitGrant(share.pod.uid, share.container, (device,), _FLAGS)


@contextlib.contextmanager
def _start(
    libraries: Mapping[str, Path], machine: Path, limits: Path, wanted: int
) -> Iterator["subprocess.Popen[str]"]:
    environment = {
        "LD_LIBRARY_PATH": str(libraries["cuda"].parent),
        "LD_PRELOAD": str(libraries["limiter"]),
        "SLICEWISE_CUDA_FILE": str(machine),
        "SLICEWISE_LIMIT_DIR": str(limits),
    }
    program = [str(Path(__file__).with_name("cuda_program.py")), str(_PIECE_MIB), str(wanted)]
    with subprocess.Popen(
        [sys.executable, "-S", *program], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _feeding(feed: LimitFeed) -> Iterator[None]:
    """The agent's loop, as often as the agent runs it."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(PERIOD_SECONDS):
            feed.tick()

    thread = threading.Thread(target=loop, name="limits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        feed.close()
