"""Replays of one trace under several policies and seeds, one after the other."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from slicewise.placement import Policy
from slicewise.placement.fairness import FairRules
from slicewise.sim.draw import draw_visits
from slicewise.sim.queue import QueueRecord, replay_queue
from slicewise.sim.replay import ReplayOptions, replay, replay_visits
from slicewise.sim.results import SteadySummary, Summary, summarise, summarise_steady
from slicewise.sim.trace_source import TraceSource

ReplayProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None] | None]]
"""Shows how far a replay of so many arrivals is, and is told that by what it yields."""


@dataclass(frozen=True, slots=True)
class SimulateSettings:
    """What to replay and how."""

    policies: tuple[Policy, ...]
    seeds: tuple[int, ...]
    load: int
    departures: float | None
    learn: bool
    fair: FairRules | None = None


def replay_all(
    source: TraceSource, settings: SimulateSettings, progress: ReplayProgress
) -> list[Summary]:
    """Every policy and seed, with arrivals alone."""
    summaries = []
    for seed in settings.seeds:
        arrivals = source.arrivals(seed, settings.load)
        for policy in settings.policies:
            with progress(f"{policy.name} seed {seed}", len(arrivals.order)) as bar:
                options = ReplayOptions(learn=settings.learn, progress=bar)
                record = replay(source.trace, arrivals, policy, options)
            summaries.append(summarise(record, seed))
    return summaries


def replay_steady(
    source: TraceSource, settings: SimulateSettings, load: float, progress: ReplayProgress
) -> list[SteadySummary]:
    """Every policy and seed, with arrivals and departures."""
    summaries = []
    for seed in settings.seeds:
        visits = draw_visits(source.trace, seed, load)
        for policy in settings.policies:
            with progress(f"{policy.name} seed {seed}", len(visits.order)) as bar:
                options = ReplayOptions(learn=settings.learn, progress=bar)
                steady = replay_visits(source.trace, visits, policy, options)
            summaries.append(summarise_steady(steady, seed))
    return summaries


def replay_queues(
    source: TraceSource, settings: SimulateSettings, load: float, progress: ReplayProgress
) -> list[QueueRecord]:
    """Every policy and seed with a queue, without fairness and with it."""
    records = []
    for seed in settings.seeds:
        visits = draw_visits(source.trace, seed, load)
        for policy in settings.policies:
            for fair in (None, settings.fair):
                with progress(f"{policy.name} seed {seed}", len(visits.order)) as bar:
                    options = ReplayOptions(settings.learn, fragmentation=False, progress=bar)
                    record = replay_queue(source.trace, visits, policy, options, fair)
                record.seed = seed
                records.append(record)
    return records
