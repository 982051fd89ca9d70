"""`slicewise compare`: every openb trace under every policy, against published and bound."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from rich.progress import track

from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import echo_text
from slicewise.cli.simulate import data_option, find_data, read_seeds
from slicewise.model import SlicewiseError, count
from slicewise.placement import read_policy
from slicewise.sim.batch import LEARNED, ReplayJob, ReplayResult, run_jobs
from slicewise.sim.bound import Bounds, bound
from slicewise.sim.drift import DRIFTS, Drift, read_drift
from slicewise.sim.results import SteadySummary, Summary, mean
from slicewise.sim.trace_source import SourceError, find_openb

POLICIES: Final = (
    "default,default:learned,fgd,best-fit,packing,clustering,dot-product,binpack,spread,random"
)
_LARGEST: Final = "8"

Published = Mapping[tuple[str, str, int], Sequence[float]]


@click.command()
@data_option
@click.option(
    "--traces", help="Names of pod lists in --data, separated by commas.  [default: all there are]"
)
@click.option(
    "--policies",
    default=POLICIES,
    show_default=True,
    help="Policies, separated by commas; NAME:learned has no statistics beforehand.",
)
@click.option("--seeds", default="42-44", show_default=True,
              help="Seeds of the order of arrival, like 42, 42,44 or 42-51.")  # fmt: skip
@click.option(
    "--departures",
    type=click.FloatRange(0.01, 10.0),
    help="Let pods end as well, at this offered load (0.9 is 90 percent of the GPUs).",
)
@click.option(
    "--defrag",
    "moves",
    type=click.IntRange(1, 8),
    is_flag=False,
    flag_value=3,
    help="With --departures: replay also with at most so many pods moved for each that fits "
    "nowhere, 3 without a number, and print what that gains.",
)
@click.option(
    "--drift",
    "drifts",
    is_flag=False,
    flag_value=",".join(DRIFTS),
    help="Change the kind of pods on the way, as in 'small:40 eights:130': pods below one GPU "
    "until 40 percent of the GPUs were asked for, then pods of eight GPUs.  "
    "[default: a list of such changes, on the first of --traces]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of processes that replay.  [default: one per CPU]",
)
def compare(  # noqa: PLR0913 one argument per flag
    *,
    data: Path | None,
    traces: str | None,
    policies: str,
    seeds: str,
    departures: float | None,
    moves: int | None,
    drifts: str | None,
    jobs: int | None,
) -> None:
    """Print Markdown tables of every trace under every policy, with the bounds."""
    if moves is not None and departures is None:
        raise click.UsageError("--defrag moves pods where others have left: pass --departures")
    try:
        folder = find_openb(find_data(data))
    except SourceError as error:
        raise click.UsageError(str(error)) from error
    names = traces.split(",") if traces else folder.trace_names()
    chosen = list(dict.fromkeys(policies.split(",")))
    try:
        for policy in chosen:
            read_policy(policy.removesuffix(LEARNED))
        if drifts is not None:
            changes = [read_drift(text) for text in drifts.split(",")]
            work = [
                ReplayJob(folder.path, names[0], seed, policy, drift=drift)
                for drift in changes
                for seed in read_seeds(seeds)
                for policy in chosen
            ]
            done = list(_follow(work, jobs or os.cpu_count() or 1))
            echo_text(_drift_table(done, changes, chosen) + "\n")
            return
        bounds = {name: bound(folder.read_trace(name)) for name in names}
        work = [
            ReplayJob(folder.path, name, seed, policy, departures, moves=most)
            for most in (0, *(() if moves is None else (moves,)))
            for name in names
            for seed in read_seeds(seeds)
            for policy in chosen
        ]
        done = list(_follow(work, jobs or os.cpu_count() or 1))
        if departures is not None:
            plain = [each for each in done if not each.job.moves]
            echo_text(_steady_table(plain, names, chosen, departures) + "\n")
            if moves is not None:
                gpus = {name: folder.read_trace(name).capacity / 100 for name in names}
                echo_text(_defrag_table(done, gpus, chosen, moves) + "\n")
            return
        published = folder.read_published("alloc")
        for load in (100, 130):
            echo_text(_table(done, bounds, chosen, load=load, published=published) + "\n")
        echo_text(_parity(done, published) + "\n")
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error


def _follow(work: Sequence[ReplayJob], processes: int) -> Iterable[ReplayResult]:
    console = EscapingConsole(stderr=True)
    finished = run_jobs(work, processes)
    if not console.is_terminal:
        return finished
    return track(finished, "replays", len(work), console=console, transient=True)


def _table(
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


def _steady_table(
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


def _defrag_table(
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


def _drift_table(
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


def _parity(done: Sequence[ReplayResult], published: Published) -> str:
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
        f"\n{runs} replays have a published curve; "
        f"the largest difference at any load is {furthest:.4f} points."
    )


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
