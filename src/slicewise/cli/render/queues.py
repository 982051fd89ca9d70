"""The table of replays with a queue: who waited how long, and what fairness costs."""

from collections.abc import Sequence

from rich.table import Table

from slicewise.cli.render.replays import make_console, name_trace
from slicewise.sim.queue import QueueRecord
from slicewise.sim.results import mean
from slicewise.sim.trace import Trace


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
