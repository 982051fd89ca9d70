"""Pacing on a simulated clock: the limiter's own C code, and the agent's own decisions.

`native/pacing` runs simulated processes on the stand-in's engine; between two periods of 100 ms
this is the agent, with what the agent's loop decides by.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import Final

from slicewise.nodeagent.limits.feed import FedGpu, set_gpu_ceilings
from slicewise.nodeagent.limits.grant_file import DeviceGrant
from slicewise.nodeagent.limits.usage_file import DeviceMeters
from slicewise_testbed.cuda import MIB, UUID, build

WAYS: Final = {"none": 0, "library": 1, "vcuda": 2, "hami": 3, "delta": 4, "aimd": 5}
PERIOD_NS: Final = 100_000_000
SECOND_NS: Final = 1_000_000_000
_U64, _I64 = ctypes.c_uint64, ctypes.c_int64


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """One container: its guarantee and highest ceiling in percent, and a work for each process."""

    cores: int
    works: str
    limit: int = 0
    on_seconds: int = 0
    off_seconds: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """The model of the GPU, in nanoseconds."""

    slice_ns: int = 2_000_000
    switch_ns: int = 50_000
    latency_ns: tuple[int, int] = (4_000, 10_000)


@dataclass(frozen=True, slots=True)
class SimulatedUse:
    """Percent of the GPU's time that one container had: in all, and in each second."""

    mean: float
    seconds: tuple[float, ...]


WORKS: Final = "tbmrvgi"
TARGETS: Final = (10, 25, 50, 75)
SEEDS: Final = (1, 2, 3)
FULL: Final = 100
SEVERAL: Final[Mapping[str, Sequence[SimulatedLoad]]] = {
    "four_processes": [SimulatedLoad(25, "tttt")],
    "three_works": [SimulatedLoad(50, "rbt")],
    "25m_75t": [SimulatedLoad(25, "m"), SimulatedLoad(75, "t")],
    "10t_30r_20b": [SimulatedLoad(10, "t"), SimulatedLoad(30, "r"), SimulatedLoad(20, "b")],
    "30rrr_30r": [SimulatedLoad(30, "rrr"), SimulatedLoad(30, "r")],
    "40m_40m": [SimulatedLoad(40, "m"), SimulatedLoad(40, "m")],
    "50r_50r": [SimulatedLoad(50, "r"), SimulatedLoad(50, "r")],
    "25b_25t_25r_25g": [SimulatedLoad(25, work) for work in "btrg"],
}
SOFT: Final[Mapping[str, Sequence[SimulatedLoad]]] = {
    "soft.alone_r": [SimulatedLoad(25, "r", 100)],
    "soft.alone_t": [SimulatedLoad(25, "t", 100)],
    "soft.idle_neighbour": [SimulatedLoad(25, "r", 100), SimulatedLoad(75, "e", 100)],
    "soft.30b_70t": [SimulatedLoad(30, "b", 100), SimulatedLoad(70, "t", 100)],
    "soft.70_wakes_30": [SimulatedLoad(70, "r", 100, 5, 5), SimulatedLoad(30, "r", 100)],
}


@cache
def load_library() -> ctypes.CDLL:
    """The simulator, built when its sources are newer."""
    library = ctypes.CDLL(str(build("pacing") / "libslicewise-pacing.so"))
    library.pacing_begin.argtypes = [_U64] * 4
    library.pacing_process.argtypes = [ctypes.c_int, ctypes.c_char, _U64, _U64, _U64]
    library.pacing_run.argtypes = [_U64]
    library.pacing_feed.argtypes = [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32]
    library.pacing_spent.restype = _I64
    library.pacing_throttled.restype = library.pacing_busy.restype = _U64
    return library


def simulate(
    loads: Sequence[SimulatedLoad],
    way: str = "library",
    *,
    seed: int = 1,
    seconds: int = 70,
    dropped: int = 10,
    agent: bool = True,
    gpu: SimulatedGpu | None = None,
) -> list[SimulatedUse]:
    """What containers had of one GPU; its first seconds are not counted."""
    library, model = load_library(), gpu or SimulatedGpu()
    library.pacing_begin(model.slice_ns, model.switch_ns, *model.latency_ns)
    try:
        containers = [_Container(library, load, way, seed) for load in loads]
        busy = [[each.busy() for each in containers]]
        for period in range(1, seconds * SECOND_NS // PERIOD_NS + 1):
            library.pacing_run(period * PERIOD_NS)
            if agent and way == "library":
                _feed(containers, period * PERIOD_NS)
            if period * PERIOD_NS % SECOND_NS == 0:
                busy.append([each.busy() for each in containers])
    finally:
        library.pacing_end()
    return [_use([row[at] for row in busy[dropped:]]) for at in range(len(loads))]


class _Container:
    def __init__(self, library: ctypes.CDLL, load: SimulatedLoad, way: str, seed: int) -> None:
        cores, limit = load.cores * 100, max(load.limit, load.cores) * 100
        on, off = load.on_seconds * SECOND_NS, load.off_seconds * SECOND_NS
        self.library = library
        self.number = library.pacing_container(WAYS[way], cores, limit)
        self.processes = [
            library.pacing_process(self.number, work.encode(), on, off, seed) for work in load.works
        ]
        grant = DeviceGrant(
            uuid=UUID,
            memory_bytes=MIB,
            cores=cores,
            ceiling=cores,
            limit=limit,
            gpu_bytes=MIB,
            weight=load.cores,
        )
        self.fed = FedGpu(grant, ceiling=cores)

    def busy(self) -> int:
        """GPU nanoseconds that its processes had so far."""
        return sum(self.library.pacing_busy(each) for each in self.processes)

    def look(self, now: int) -> None:
        """What the agent reads of the container's file and of NVML."""
        spent = self.library.pacing_spent(self.number)
        throttled = self.library.pacing_throttled(self.number)
        self.fed.take(DeviceMeters(spent, 0, 0, throttled, *(0,) * 7), now, PERIOD_NS)
        seen = {each: self.library.pacing_percent(each) for each in self.processes}
        self.fed.correct(seen, self.processes)

    def tell(self) -> None:
        """What the agent writes into the container's grant."""
        fed = self.fed.fed
        self.library.pacing_feed(self.number, fed.ceiling, fed.scale)


def _feed(containers: Sequence[_Container], now: int) -> None:
    for each in containers:
        each.look(now)
    set_gpu_ceilings([each.fed for each in containers], 0, now)
    for each in containers:
        each.tell()


def _use(busy: Sequence[int]) -> SimulatedUse:
    shares = tuple(100 * (after - before) / SECOND_NS for before, after in pairwise(busy))
    return SimulatedUse(sum(shares) / len(shares), shares)


def measure_errors(
    target: int, way: str = "library", *, agent: bool = True, gpu: SimulatedGpu | None = None
) -> Iterator[tuple[str, float]]:
    """Percent of the share that its mean is off, and points of the GPU that seconds are off."""
    uses = [
        simulate([SimulatedLoad(target, work)], way, seed=seed, agent=agent, gpu=gpu)[0]
        for work in WORKS
        for seed in SEEDS
    ]
    errors = [100 * (use.mean - target) / target for use in uses]
    yield "mean_error", fmean(map(abs, errors))
    yield "worst_error", max(map(abs, errors))
    yield "shortfall", fmean(max(0.0, -error) for error in errors)
    yield "second_points", fmean(abs(each - target) for use in uses for each in use.seconds)


def measure_shares(loads: Sequence[SimulatedLoad], way: str = "library") -> list[float]:
    """Percent of the GPU that each container had."""
    runs = [simulate(loads, way, seed=seed) for seed in SEEDS]
    return [fmean(run[at].mean for run in runs) for at in range(len(loads))]


def measure_model(gpu: SimulatedGpu) -> Iterator[float]:
    """Percent of their shares that containers are off on such a GPU, alone and beside others."""
    alone = [[SimulatedLoad(target, work)] for target in TARGETS for work in WORKS]
    # Where all of a GPU is promised, switching between contexts takes a part of it.
    several = [each for each in SEVERAL.values() if sum(load.cores for load in each) < FULL]
    for loads in [*alone, *several]:
        for load, use in zip(loads, simulate(loads, gpu=gpu), strict=True):
            yield 100 * abs(use.mean - load.cores) / load.cores
