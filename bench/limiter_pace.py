"""How near the limiter comes to a share, in real time, with the agent's own loop beside it.

Programs run on the CUDA stand-in, whose clock is the machine's: on a busy machine they are late,
and the figures are worse than on a quiet one. Shares are read from the time that the stand-in's
engine gave to each process.
"""

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.grant_file import DeviceGrant, GrantFlags, LimitGrant
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise.nvml.library import LibraryDriver
from slicewise_testbed.cuda import (
    MIB,
    UUID,
    CudaClient,
    CudaMachine,
    build,
    compile_state_reader,
    limiter,
    run_client,
)

WARM_SECONDS = 5
SECONDS = float(os.environ.get("SLICEWISE_PACE_SECONDS", "20"))
# Tiny kernels, big ones and a training step; a mix of the first two; graphs of ten kernels.
_KERNELS = {"t": (10, 1000), "b": (50_000, 1), "r": (200, 300), "n": (500, 1)}
_MIX, _GRAPH = "m", "g"
_WORKS = ("t", "b", "r", _MIX, _GRAPH)
_FLAGS = GrantFlags(1 | 2 | 4 | 8 | 16)
_PERIOD = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """One container: its guarantee and highest ceiling in percent, and what its processes run."""

    cores: int
    works: tuple[str, ...]
    limit: int = 0


def measure_limiter_pace() -> Iterator[tuple[str, float]]:
    """Percent of the GPU's time that containers had, beside what they were promised."""
    for cores in (10, 25, 50, 75):
        for work in _WORKS:
            (had,) = run_loads([Load(cores, (work,))])
            yield f"{work}.{cores}", round(had, 2)
    (had,) = run_loads([Load(25, ("t", "t"))])
    yield "two_processes.25", round(had, 2)
    (had,) = run_loads([Load(25, ("t", "t", "t", "t"))])
    yield "four_processes.25", round(had, 2)
    for name, loads in (
        ("two_containers.50_50", [Load(50, ("r",)), Load(50, ("r",))]),
        ("four_containers.25", [Load(25, (work,)) for work in ("b", "t", "r", "g")]),
    ):
        shares = run_loads(loads)
        for at, had in enumerate(shares):
            yield f"{name}.{at}", round(had, 2)
    yield "unlimited_sum", round(sum(run_loads([Load(0, ("r",)), Load(0, ("r",))])), 2)


def measure_limiter_soft() -> Iterator[tuple[str, float]]:
    """What a container gets that may burst: alone, and when its neighbour wakes."""
    (alone,) = run_loads([Load(25, ("r",), limit=100)])
    yield "alone.25", round(alone, 2)
    lent, _ = run_loads([Load(25, ("r",), limit=100), Load(75, (), limit=100)])
    yield "idle_neighbour.25", round(lent, 2)
    one, other = run_loads([Load(30, ("b",), limit=100), Load(70, ("t",), limit=100)])
    yield "both.30", round(one, 2)
    yield "both.70", round(other, 2)
    woken = run_waking(Load(25, ("r",), limit=100), Load(75, ("r",), limit=100))
    yield "woken.75", round(woken, 2)


def run_loads(loads: Sequence[Load], warm: float = WARM_SECONDS) -> list[float]:
    """The percent of GPU time that each container had after the warm-up."""
    with _run_containers(loads) as (machine, groups):
        for load, group in zip(loads, groups, strict=True):
            _work(load, group, warm + SECONDS)
        time.sleep(warm)
        return _measure(machine, groups, SECONDS)


def run_waking(sleeper: Load, waker: Load, late: float = 1.0) -> float:
    """The percent that a container has in the two seconds after it has been awake for so long."""
    with _run_containers([sleeper, waker]) as (machine, groups):
        _work(sleeper, groups[0], WARM_SECONDS + late + 2)
        time.sleep(WARM_SECONDS)
        _work(waker, groups[1], late + 2)
        time.sleep(late)
        return _measure(machine, groups, 2)[1]


@contextlib.contextmanager
def _run_containers(
    loads: Sequence[Load],
) -> Iterator[tuple[CudaMachine, list[list[CudaClient]]]]:
    """A machine, and the programs of each container, with the agent's loop beside them."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kernels = [f"kernel {name} {us} 20" for name, (us, _) in _KERNELS.items()]
        machine = CudaMachine(folder, [f"gpu {UUID} 16384", *kernels])
        folders = LimitFolders(folder / "limits")
        for at, load in enumerate(loads):
            folders.write(_grant(at, load), "library")
        groups = [
            [stack.enter_context(_start(machine, folders, at)) for _ in load.works]
            for at, load in enumerate(loads)
        ]
        with _feed(folder, folders):
            yield machine, groups


def _work(load: Load, group: Sequence[CudaClient], seconds: float) -> None:
    for work, client in zip(load.works, group, strict=True):
        milliseconds = int((seconds + 2) * 1000)
        if work == _MIX:
            client.send("mix", milliseconds)
        elif work == _GRAPH:
            _capture(client)
            client.send("graphs", milliseconds, 4)
        else:
            client.send("work", milliseconds, _KERNELS[work][1], work)


def _capture(client: CudaClient) -> None:
    """A graph of ten kernels that takes 5 ms."""
    for command in (
        ("stream", 0, 0),
        ("capture", 0, 0),
        ("launch", 10, 0, "n"),
        ("captured", 0),
        ("instantiate",),
    ):
        assert client.result(*command) == 0


def _measure(
    machine: CudaMachine, groups: Sequence[Sequence[CudaClient]], seconds: float
) -> list[float]:
    before, began = _busy(machine), time.monotonic_ns()
    time.sleep(seconds)
    after, passed = _busy(machine), time.monotonic_ns() - began
    return [
        sum(100 * (after[each.process.pid] - before[each.process.pid]) / passed for each in group)
        for group in groups
    ]


def _grant(at: int, load: Load) -> LimitGrant:
    device = DeviceGrant(
        uuid=UUID,
        memory_bytes=1024 * MIB,
        cores=load.cores * 100,
        ceiling=load.cores * 100,
        limit=max(load.cores, load.limit) * 100,
        gpu_bytes=16384 * MIB,
        weight=load.cores,
    )
    return LimitGrant(f"pod-{at}", "main", (device,), _FLAGS)


@contextlib.contextmanager
def _start(machine: CudaMachine, folders: LimitFolders, at: int) -> Iterator[CudaClient]:
    environment = {
        **machine.environment(),
        "LD_PRELOAD": str(limiter()),
        "SLICEWISE_LIMIT_DIR": str(folders.folder(f"pod-{at}", "main")),
    }
    with run_client(environment, "ask") as client:
        yield client.start()


@contextlib.contextmanager
def _feed(folder: Path, folders: LimitFolders) -> Iterator[None]:
    """The agent's loop, as often as the agent runs it."""
    described = folder / "machine"
    described.write_text(
        f"driver 615.1\ncuda 13040\ntenants {folder / 'cuda.state'}\n"
        f"gpu 0 0 {UUID} 00000000:01:00.0\nname A\nmemory 16384 0\nstate 0 0 0\nend\n"
    )
    os.environ["SLICEWISE_NVML_FILE"] = str(described)
    driver = LibraryDriver(build("nvml") / "libnvidia-ml.so.1", sysfs=folder)
    feed, stop = LimitFeed(folders, driver), threading.Event()

    def loop() -> None:
        while not stop.wait(_PERIOD):
            feed.tick()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        feed.close()
        driver.close()


def _busy(machine: CudaMachine) -> dict[int, int]:
    """GPU nanoseconds by PID, as the stand-in's engine counted them."""
    printed = subprocess.check_output([compile_state_reader(), machine.state, "busy"], text=True)
    return {int(pid): int(ns) for pid, ns in map(str.split, printed.splitlines())}
