"""Markdown tables of many replays: traces by policies, against published curves and bounds."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from slicewise.model import count
from slicewise.sim.batch import ReplayResult
from slicewise.sim.bound import Bounds
from slicewise.sim.drift import Drift
from slicewise.sim.results import SteadySummary, Summary, mean

_LARGEST: Final = "8"

Published = Mapping[tuple[str, str, int], Sequence[float]]


def write_allocations(
    done: Sequence[ReplayResult],
    bounds: Mapping[str, Bounds],
    policies: Sequence[str],
    *,
    load: int,
    published: Published,
) -> str:
    """GPU allocated at one arrived load, in percent of all GPUs; mean over seeds."""
    seeds = sorted({each.job.seed for each in done})
    head = ["trace", *policies, "fgd published", "lossless", "most"]
    rows = []
    for name, limits in bounds.items():
        curves = [published.get((name, "fgd", seed)) for seed in seeds]
        cells = [
            name,
            *(_cell(_at(done, name, policy, load)) for policy in policies),
            _cell(mean(curve[load] for curve in curves if curve is not None)),
            _cell(limits.lossless),
            _cell(limits.most) if load == 100 else "-",
        ]
        rows.append(cells)
    title = f"GPU allocated at {load} % arrived load, percent of all GPUs, mean of "
    return _markdown(title + count(len(seeds), "seed"), head, rows)


def _markdown(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(row)} |" for row in rows)
    ruler = f"|---{'|---:' * (len(head) - 1)}|"
    return "\n".join((f"\n{title}:\n", f"| {' | '.join(head)} |", ruler, *lines))


def _at(done: Sequence[ReplayResult], name: str, policy: str, load: int) -> float:
    return mean(
        each.summary.allocation[load]
        for each in done
        if isinstance(each.summary, Summary) and (each.job.trace, each.job.policy) == (name, policy)
    )


def write_steady(
    done: Sequence[ReplayResult], names: Sequence[str], policies: Sequence[str], load: float
) -> str:
    """GPU allocated, GPU demand taken and 8-GPU pods taken, with departures."""
    rows = []
    for name in names:
        cells = [name]
        for policy in policies:
            runs = [
                each.summary
                for each in done
                if isinstance(each.summary, SteadySummary)
                and (each.job.trace, each.job.policy) == (name, policy)
            ]
            numbers = (
                mean(run.allocated for run in runs),
                mean(run.accepted_demand for run in runs),
                mean(run.accepted_percent.get(_LARGEST, math.nan) for run in runs),
            )
            cells.append(" / ".join(map(_cell, numbers)))
        rows.append(cells)
    title = f"At {load:.2f} offered load, percent of GPUs allocated / demand taken / 8-GPU pods "
    return _markdown(title + "taken, mean over seeds", ["trace", *policies], rows)


def write_moves(
    done: Sequence[ReplayResult],
    gpus: Mapping[str, float],
    policies: Sequence[str],
    moves: int,
) -> str:
    """What moves gain: GPUs allocated and pods of eight GPUs taken, beside how many they were."""
    rows = []
    for name, capacity in gpus.items():
        for policy in policies:
            plain, moved = (
                [
                    each.summary
                    for each in done
                    if isinstance(each.summary, SteadySummary)
                    and (each.job.trace, each.job.policy, each.job.moves) == (name, policy, most)
                ]
                for most in (0, moves)
            )
            gain = mean(run.allocated for run in moved) - mean(run.allocated for run in plain)
            eights = (
                mean(run.accepted_percent.get(_LARGEST, math.nan) for run in runs)
                for runs in (plain, moved)
            )
            numbers = (
                mean(run.allocated for run in plain),
                mean(run.allocated for run in moved),
                gain * capacity / 100,
                *eights,
                mean(run.moves_per_1000 for run in moved),
            )
            rows.append([name, policy, *map(_cell, numbers)])
    head = ["trace", "policy", "allocated", "with moves", "GPUs gained", "8-GPU taken",
            "with moves", "moves per 1,000 arrivals"]  # fmt: skip
    title = f"With at most {count(moves, 'move')} for a pod that fits nowhere, percent of GPUs"
    return _markdown(f"{title}, mean over seeds", head, rows)


def write_drifts(
    done: Sequence[ReplayResult], drifts: Sequence[Drift], policies: Sequence[str]
) -> str:
    """GPU allocated at the end of each drift, in percent of all GPUs; mean over seeds."""
    rows = [
        [
            drift.name,
            *(
                _cell(
                    mean(
                        each.summary.at_end
                        for each in done
                        if isinstance(each.summary, Summary)
                        and (each.job.drift, each.job.policy) == (drift, policy)
                    )
                )
                for policy in policies
            ),
        ]
        for drift in drifts
    ]
    seeds = {each.job.seed for each in done}
    title = "GPU allocated after the kind of pods has changed, percent of all GPUs, mean of "
    return _markdown(title + count(len(seeds), "seed"), ["drift", *policies], rows)


def write_parity(done: Sequence[ReplayResult], published: Published) -> str:
    """How far the replays are from the published curves of deterministic policies."""
    furthest, runs = 0.0, 0
    for each in done:
        curve = published.get((each.job.trace, each.job.policy, each.job.seed))
        if curve is None or each.job.policy == "random" or not isinstance(each.summary, Summary):
            continue
        runs += 1
        pairs = zip(each.summary.allocation, curve, strict=True)
        gaps = [abs(own - other) for own, other in pairs if not math.isnan(own + other)]
        furthest = max(furthest, *gaps)
    return (
        f"\n{count(runs, 'replay')} with a published curve; "
        f"the largest difference at any load is {furthest:.4f} points."
    )


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
