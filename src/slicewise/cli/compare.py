"""`slicewise compare`: every openb trace under every policy, against published and bound."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import track

from slicewise.cli.simulate import data_option, find_data, read_seeds
from slicewise.model import SlicewiseError, count
from slicewise.placement import read_policy
from slicewise.sim.batch import LEARNED, ReplayJob, ReplayResult, run_jobs
from slicewise.sim.bound import Bounds, bound
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
    jobs: int | None,
) -> None:
    """Print Markdown tables of every trace under every policy, with the bounds."""
    try:
        folder = find_openb(find_data(data))
    except SourceError as error:
        raise click.UsageError(str(error)) from error
    names = traces.split(",") if traces else folder.trace_names()
    chosen = list(dict.fromkeys(policies.split(",")))
    try:
        for policy in chosen:
            read_policy(policy.removesuffix(LEARNED))
        bounds = {name: bound(folder.read_trace(name)) for name in names}
        work = [
            ReplayJob(folder.path, name, seed, policy, departures)
            for name in names
            for seed in read_seeds(seeds)
            for policy in chosen
        ]
        done = list(_follow(work, jobs or os.cpu_count() or 1))
        if departures is not None:
            click.echo(_steady_table(done, names, chosen, departures))
            return
        published = folder.read_published("alloc")
        for load in (100, 130):
            click.echo(_table(done, bounds, chosen, load=load, published=published))
        click.echo(_parity(done, published))
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error


def _follow(work: Sequence[ReplayJob], processes: int) -> Iterable[ReplayResult]:
    console = Console(stderr=True)
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
