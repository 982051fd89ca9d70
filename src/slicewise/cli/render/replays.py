"""Replays as people read them: tables, and one line that says what was seen."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rich.table import Table

from slicewise.cli.render.console import EscapingConsole
from slicewise.sim.bound import Bounds
from slicewise.sim.queue import QueueRecord
from slicewise.sim.record import order_sizes
from slicewise.sim.results import SteadySummary, Summary, add_counts, mean, name_trace
from slicewise.sim.trace import Trace

T = TypeVar("T", Summary, SteadySummary)


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


def show_queues(records: Sequence[QueueRecord], trace: Trace, load: float) -> None:
    """Print each policy without and with fairness: means over seeds, waits in mean stays."""
    seeds = len({each.seed for each in records})
    title = name_trace(trace)
    table = Table(
        title=f"{title}, mean of {seeds} seeds" if seeds > 1 else title,
        caption="longest waits in mean stays; waiting pods are those without a node at the end",
    )
    table.add_column("policy")
    for name in ("allocated", "whole: longest", "waiting", "parts: longest", "waiting", "kept"):
        table.add_column(name, justify="right")
    for policy in dict.fromkeys(each.policy for each in records):
        runs = [each for each in records if each.policy == policy]
        cells = [f"{mean(each.allocated_percent for each in runs):.2f}%"]
        for whole in (True, False):
            cells.append(f"{mean(each.longest(whole=whole) for each in runs):.2f}")
            cells.append(f"{mean(each.count_unbound(whole=whole) for each in runs):.1f}")
        table.add_row(policy, *cells, f"{mean(each.kept for each in runs):.1f}")
    console = make_console()
    console.print(table)
    console.print(
        f"Pods came and went at {load:.0%} offered load, and waited where they did not fit.",
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
