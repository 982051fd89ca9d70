"""`slicewise compare`: every openb trace under every policy, against published and bound."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click
from rich.progress import track

from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import echo_text
from slicewise.cli.simulate import data_option, find_data, read_seeds
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy
from slicewise.sim.batch import LEARNED, ReplayJob, ReplayResult, run_jobs
from slicewise.sim.bound import bound
from slicewise.sim.drift import DRIFTS, read_drift
from slicewise.sim.tables import (
    write_allocations,
    write_drifts,
    write_moves,
    write_parity,
    write_steady,
)
from slicewise.sim.trace_source import SourceError, find_openb

POLICIES: Final = (
    "default,default:learned,fgd,best-fit,packing,clustering,dot-product,binpack,spread,random"
)


@click.command(short_help="Replay every trace under every policy.")
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
            echo_text(write_drifts(done, changes, chosen) + "\n")
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
            echo_text(write_steady(plain, names, chosen, departures) + "\n")
            if moves is not None:
                gpus = {name: folder.read_trace(name).capacity / 100 for name in names}
                echo_text(write_moves(done, gpus, chosen, moves) + "\n")
            return
        published = folder.read_published("alloc")
        for load in (100, 130):
            echo_text(
                write_allocations(done, bounds, chosen, load=load, published=published) + "\n"
            )
        echo_text(write_parity(done, published) + "\n")
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error


def _follow(work: Sequence[ReplayJob], processes: int) -> Iterable[ReplayResult]:
    console = EscapingConsole(stderr=True)
    finished = run_jobs(work, processes)
    if not console.is_terminal:
        return finished
    return track(finished, "replays", len(work), console=console, transient=True)
