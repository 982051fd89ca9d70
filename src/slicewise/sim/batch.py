"""Many replays of openb traces, spread over processes, and the tables they fill."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from slicewise.placement import read_policy
from slicewise.sim.draw import draw_arrivals, draw_visits
from slicewise.sim.drift import Drift, draw_drift
from slicewise.sim.openb import OpenbFolder
from slicewise.sim.replay import ReplayOptions, replay, replay_visits
from slicewise.sim.results import SteadySummary, Summary, summarise, summarise_steady
from slicewise.sim.trace import ArrivalOrder, Trace

LEARNED: Final = ":learned"


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """One replay: a policy name with `:learned` behind it knows nothing beforehand."""

    folder: Path
    trace: str
    seed: int
    policy: str
    departures: float | None = None
    drift: Drift | None = None
    moves: int = 0
    """With departures: how many pods may be moved for one that fits nowhere."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    job: ReplayJob
    summary: Summary | SteadySummary


def run_job(job: ReplayJob) -> ReplayResult:
    trace = _read_trace(job.folder, job.trace)
    policy = read_policy(job.policy.removesuffix(LEARNED), job.seed)
    learn = job.policy.endswith(LEARNED)
    options = ReplayOptions(learn=learn, fragmentation=False, moves=job.moves)
    if job.departures is not None:
        visits = draw_visits(trace, job.seed, job.departures)
        steady = summarise_steady(replay_visits(trace, visits, policy, options), job.seed)
        return ReplayResult(job, replace(steady, policy=job.policy))
    if job.drift is not None:
        trace, arrivals = draw_drift(trace, job.drift, job.seed)
    else:
        arrivals = _read_arrivals(job.folder, job.trace, job.seed)
    summary = summarise(replay(trace, arrivals, policy, options), job.seed)
    return ReplayResult(job, replace(summary, policy=job.policy))


def run_jobs(jobs: Sequence[ReplayJob], processes: int) -> Iterator[ReplayResult]:
    if processes == 1:
        yield from map(run_job, jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_job, job) for job in jobs]):
            yield future.result()


@lru_cache(maxsize=4)
def _read_trace(folder: Path, name: str) -> Trace:
    return OpenbFolder(folder).read_trace(name)


@lru_cache(maxsize=16)
def _read_arrivals(folder: Path, name: str, seed: int) -> ArrivalOrder:
    """The recorded arrivals, or arrivals drawn by the same protocol where none are."""
    trace = _read_trace(folder, name)
    return OpenbFolder(folder).read_arrivals(trace, seed) or draw_arrivals(trace, seed)
