"""Replays as people read them: tables, one line that says what was seen, and charts.

A chart draws allocation and fragmentation over arrived load, a line per policy.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.table import Table

from slicewise.cli.render.console import EscapingConsole
from slicewise.model import count
from slicewise.sim.bound import Bounds
from slicewise.sim.record import order_sizes
from slicewise.sim.results import SteadySummary, Summary, add_counts, mean, mean_curve
from slicewise.sim.trace import Trace

T = TypeVar("T", Summary, SteadySummary)
# Told apart with any common form of colour blindness; the last ones are dashed as well.
_COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
_SUFFIXES: Final = (".png", ".svg")
# Below this load every policy takes everything, and the lines are one.
_ZOOM: Final = 70

Curves = Mapping[str, Sequence[float]]


def show(summaries: Sequence[Summary], trace: Trace, bounds: Bounds | None) -> None:
    """Print the table of replays without departures, and what was seen."""
    table = _table(trace, len({each.seed for each in summaries}))
    shown = ("at 100%", "at end", "idle", "frag.", "memory")
    refused = add_counts(each.refused for each in summaries)
    _head(table, shown, refused)
    groups = _by_policy(summaries)
    for policy, runs in groups.items():
        numbers = (
            mean(each.at_full for each in runs),
            mean(each.at_end for each in runs),
            mean(each.unallocated for each in runs),
            mean(each.fragmented for each in runs),
            mean(each.memory_at_end for each in runs),
        )
        table.add_row(policy, *map(_percent, numbers), *_tail(runs, refused))
    make_console().print(table)
    make_console().print(
        _seen(groups, trace, bounds), markup=False, highlight=False, soft_wrap=True
    )


def show_steady(summaries: Sequence[SteadySummary], trace: Trace, load: float) -> None:
    table = _table(trace, len({each.seed for each in summaries}))
    refused = add_counts(each.refused for each in summaries)
    largest = order_sizes({size for each in summaries for size in each.accepted_percent})[-1:]
    _head(table, ("allocated", "demand taken", *(f"{size}-GPU taken" for size in largest)), refused)
    for policy, runs in _by_policy(summaries).items():
        numbers = [
            mean(each.allocated for each in runs),
            mean(each.accepted_demand for each in runs),
            *(mean(each.accepted_percent.get(size, math.nan) for each in runs) for size in largest),
        ]
        table.add_row(policy, *map(_percent, numbers), *_tail(runs, refused))
    make_console().print(table)
    make_console().print(
        f"Pods came and went at {load:.0%} offered load; means over three mean stays.",
        markup=False,
        highlight=False,
    )


def _seen(groups: Mapping[str, Sequence[Summary]], trace: Trace, bounds: Bounds | None) -> str:
    idle = {policy: mean(each.unallocated for each in runs) for policy, runs in groups.items()}
    ranked = sorted(idle, key=lambda policy: idle[policy])
    gpus = trace.capacity / 100
    text = f"{ranked[0]} leaves {idle[ranked[0]]:.2f} % of {gpus:.0f} GPUs idle"
    if len(ranked) > 1:
        won = (idle[ranked[-1]] - idle[ranked[0]]) * gpus / 100
        text += f", {ranked[-1]} {idle[ranked[-1]]:.2f} %: a difference of {won:.0f} GPUs"
    if bounds is not None and not math.isnan(mean(each.at_full for each in groups[ranked[0]])):
        text += f"; no policy could leave less than {100 - bounds.most:.2f} %"
    return f"{text}."


def _table(trace: Trace, seeds: int) -> Table:
    title = name_trace(trace)
    return Table(
        title=f"{title}, mean of {seeds} seeds" if seeds > 1 else title,
        caption="percent of all GPUs; idle and fragmented at 100% arrived load",
    )


def name_trace(trace: Trace) -> str:
    """The trace with the size of its cluster."""
    gpus = count(trace.capacity // 100, "GPU")
    return f"{trace.name}: {count(len(trace.nodes), 'node')}, {gpus}"


def _head(table: Table, shown: Sequence[str], refused: Mapping[str, int]) -> None:
    table.add_column("policy")
    for name in shown:
        table.add_column(name, justify="right")
    table.add_column(f"refused {'/'.join(order_sizes(refused))}", justify="right")
    table.add_column("p50/p99 ms", justify="right")


def _tail(
    runs: Sequence[Summary] | Sequence[SteadySummary], refused: Mapping[str, int]
) -> tuple[str, str]:
    """Refusals by size per run, and how long decisions took."""
    own = add_counts(each.refused for each in runs)
    counts = [f"{own[size] / len(runs):.0f}" for size in order_sizes(refused)]
    p50, p99 = mean(each.p50_ms for each in runs), mean(each.p99_ms for each in runs)
    return "/".join(counts) or "none", f"{p50:.2f}/{p99:.2f}"


def _by_policy(summaries: Sequence[T]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for each in summaries:
        groups.setdefault(each.policy, []).append(each)
    return groups


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}%"


def make_console() -> EscapingConsole:
    """Standard output; wide where it is no terminal, so that no cell is cut."""
    console = EscapingConsole()
    return console if console.is_terminal else EscapingConsole(width=120)


def check_chart(path: Path) -> None:
    """Refuse early what could not be drawn at the end."""
    if path.suffix not in _SUFFIXES:
        raise click.BadParameter(f"{path}: expected a name that ends in .png or .svg")
    _load_pyplot()


def draw_chart(path: Path, trace: Trace, summaries: Sequence[Summary]) -> None:
    policies = dict.fromkeys(each.policy for each in summaries)
    allocation = {
        name: mean_curve([each.allocation for each in summaries if each.policy == name])
        for name in policies
    }
    fragmentation = {
        name: mean_curve([each.fragmentation for each in summaries if each.policy == name])
        for name in policies
    }
    pyplot = _load_pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    last = max((_last(curve) for curve in allocation.values()), default=0)
    _draw_lines(left, allocation)
    left.plot([0, last], [0, last], color="#bbbbbb", linestyle=":", label="all that arrived")
    left.set(title="GPU allocated", ylabel="percent of all GPUs")
    _zoom(left, allocation, last)
    _draw_lines(right, fragmentation)
    right.set(title="Idle GPU an average pod cannot use", ylabel="percent of all GPUs")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("arrived load, percent of all GPUs")
        axes.grid(color="#eeeeee")
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="lower right")
    figure.suptitle(name_trace(trace))
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _draw_lines(axes: Any, curves: Curves) -> None:
    for at, (name, curve) in enumerate(curves.items()):
        # A load that no arrival came near is bridged.
        known = [(load, value) for load, value in enumerate(curve) if not math.isnan(value)]
        axes.plot(
            *zip(*known, strict=True),
            color=_COLOURS[at % len(_COLOURS)],
            linestyle="-" if at < len(_COLOURS) else "--",
            linewidth=1.8,
            label=name,
        )


def _zoom(axes: Any, curves: Curves, last: int) -> None:
    if last <= _ZOOM:
        return
    seen = [value for curve in curves.values() for value in curve[_ZOOM : last + 1]]
    known = [value for value in seen if not math.isnan(value)]
    axes.set_xlim(_ZOOM, last)
    axes.set_ylim(min(known) - 1, max(known) + 1)


def _last(curve: Sequence[float]) -> int:
    return max((at for at, value in enumerate(curve) if not math.isnan(value)), default=0)


def _load_pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415 only pictures need it, and it is an extra

        matplotlib.use("agg")
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError as error:
        raise click.UsageError(
            "cannot draw: matplotlib is not installed; pip install 'slicewise[plot]'"
        ) from error
    return pyplot
