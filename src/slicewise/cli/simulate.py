"""`slicewise simulate`: replay a trace under one policy or several, and compare them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.replays import show, show_queues, show_steady
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.model import SlicewiseError
from slicewise.placement import Policy, read_policy
from slicewise.placement.fairness import FairRules
from slicewise.sim.charts import ChartError, check_chart, draw_chart
from slicewise.sim.results import SteadySummary, Summary, as_json, bound_of, describe
from slicewise.sim.runs import SimulateSettings, replay_all, replay_queues, replay_steady
from slicewise.sim.trace_source import (
    DATA,
    SourceError,
    TraceSource,
    find_openb,
    read_files,
    read_sample,
)

POLICY_NAMES: Final = "default,fgd,best-fit,packing,clustering,dot-product,binpack,spread,random"
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


F = TypeVar("F", bound=Callable[..., Any])


def data_option(command: F) -> F:
    """The flag that names the folder of trace data."""
    flag = click.option(
        "--data",
        "--openb",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"Folder with the openb trace files.  [env: {DATA}]",
    )
    return flag(command)


def find_data(given: Path | None) -> Path | None:
    """The folder that the flag names, or else the environment."""
    named = os.environ.get(DATA)
    return given or (Path(named) if named else None)


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds as people write them: `42`, `42,44` or `42-51`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise click.BadParameter(f"{text!r}: expected seeds like 42, 42,44 or 42-51")
        seeds.extend(range(int(first), int(last or first) + 1))
    if not seeds or len(seeds) > 1000:
        raise click.BadParameter(f"{text!r}: expected 1 to 1000 seeds")
    return tuple(seeds)


@click.command(short_help="Replay a trace under placement policies.")
@click.option("--nodes", type=_FILE, help="Node list: CSV in the openb form, YAML or JSON.")
@click.option("--pods", type=_FILE, help="Pod list, in the same form as the nodes.")
@data_option
@click.option(
    "--trace", "name", help="Name of the pod list in --data to replay.  [default: default]"
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    help=f"Policies to replay, separated by commas; can be repeated.  [default: {POLICY_NAMES}]",
)
@click.option("--seed", "--seeds", "seeds", default="42", show_default=True,
              help="Seeds of the order of arrival, like 42, 42,44 or 42-51.")  # fmt: skip
@click.option(
    "--load",
    type=click.IntRange(1, 1000),
    default=130,
    show_default=True,
    help="How much GPU demand arrives, in percent of the cluster's GPUs.",
)
@click.option(
    "--departures",
    type=click.FloatRange(0.01, 10.0),
    help="Let pods end as well, at this offered load (0.9 is 90 percent of the GPUs).",
)
@click.option(
    "--fair-after",
    type=click.FloatRange(0.0, 100.0),
    help="With --departures: let refused pods wait, once without and once with room kept for the "
    "pod that has waited longest, from this wait on (0.5 is half of a mean stay).",
)
@click.option(
    "--fair-for",
    type=click.FloatRange(0.01, 100.0),
    default=4.0,
    show_default=True,
    help="With --fair-after: how long room is kept for one pod at most, in mean stays.",
)
@click.option(
    "--learn",
    is_flag=True,
    help="Give policies no statistics of the trace beforehand; they learn from arrivals.",
)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="A table for people, or JSON for scripts.")  # fmt: skip
@click.option(
    "--plot",
    "chart",
    type=_FILE,
    help="Draw allocation and fragmentation as a chart in this .png or .svg file.",
)
def simulate(  # noqa: PLR0913 one argument per flag
    *,
    nodes: Path | None,
    pods: Path | None,
    data: Path | None,
    name: str | None,
    policies: tuple[str, ...],
    seeds: str,
    load: int,
    departures: float | None,
    fair_after: float | None,
    fair_for: float,
    learn: bool,
    output: str,
    chart: Path | None,
) -> None:
    """Replay nodes and pods under placement policies and show what each achieves.

    Without arguments, replays the small sample that ships with Slicewise.
    """
    if chart is not None and departures is not None:
        raise click.UsageError("--plot draws arrived load: leave --departures out")
    if fair_after is not None and departures is None:
        raise click.UsageError("--fair-after is about pods that wait for others to end: "
                               "expected --departures beside it")  # fmt: skip
    fair = None if fair_after is None else FairRules(fair_after, fair_for)
    try:
        if chart is not None:
            check_chart(chart)
        chosen = read_policies(policies)
        settings = SimulateSettings(chosen, read_seeds(seeds), load, departures, learn, fair)
        source = _read_source(nodes, pods, data, name)
        _run(source, settings, output, chart)
    except (SourceError, ChartError) as error:
        raise click.UsageError(str(error)) from error
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error


def _read_source(
    nodes: Path | None, pods: Path | None, data: Path | None, name: str | None
) -> TraceSource:
    """The files named, the trace data named, or the sample that ships with Slicewise."""
    if nodes is not None or pods is not None:
        return read_files(nodes, pods)
    if data is None and name is None:
        return TraceSource(read_sample())
    folder = find_openb(find_data(data))
    return TraceSource(folder.read_trace(name or "default"), folder)


def read_policies(given: Sequence[str]) -> tuple[Policy, ...]:
    """Policies by name; commas separate them unless one is composed of weighed terms."""
    names: list[str] = []
    for text in given or (POLICY_NAMES,):
        names.extend([text] if "=" in text else text.split(","))
    return tuple(read_policy(name.strip()) for name in dict.fromkeys(names))


def _run(source: TraceSource, settings: SimulateSettings, output: str, chart: Path | None) -> None:
    trace = source.trace
    for note in trace.notes:
        echo(note, err=True)
    if settings.departures is not None and settings.fair is not None:
        queues = replay_queues(source, settings, settings.departures, _progress)
        if output == "json":
            facts = {"offered_load": settings.departures, "learn": settings.learn}
            echo_json({**describe(trace), **facts, "runs": [each.describe() for each in queues]})
        else:
            show_queues(queues, trace, settings.departures)
        return
    if settings.departures is not None:
        steady = replay_steady(source, settings, settings.departures, _progress)
        if output == "json":
            facts = {"offered_load": settings.departures, "learn": settings.learn}
            _print_json(source, facts, steady)
        else:
            show_steady(steady, trace, settings.departures)
        return
    summaries = replay_all(source, settings, _progress)
    if chart is not None:
        draw_chart(chart, trace, summaries)
    if output == "json":
        _print_json(source, {"load_percent": settings.load, "learn": settings.learn}, summaries)
    else:
        show(summaries, trace, bound_of(trace))


@contextmanager
def _progress(text: str, total: int) -> Iterator[Callable[[int], None] | None]:
    console = EscapingConsole(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=total)

        def draw(done: int) -> None:
            # Not for every pod, which would take longer than placing it.
            if done % 64 == 0 or done == total:
                progress.update(task, completed=done)

        yield draw


def _print_json(
    source: TraceSource,
    facts: Mapping[str, object],
    summaries: Sequence[Summary] | Sequence[SteadySummary],
) -> None:
    runs = [as_json(each) for each in summaries]
    echo_json({**describe(source.trace), **facts, "runs": runs})
