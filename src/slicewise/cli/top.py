"""`slicewise top`: who holds what of every GPU and how much of it they use, redrawn as it changes.

On a terminal it stays; in a pipe, with --once or as JSON it prints once.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slicewise.cli.cluster_access import (
    ClusterFlags,
    CommandFailure,
    cluster_options,
    run_connected,
    warn,
)
from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import echo_json, echo_text
from slicewise.kube.client import Client
from slicewise.state.live import LiveState
from slicewise.state.settings import choose_settings
from slicewise.state.usage.node_reports import (
    AGENT_PORT,
    AgentReportReader,
    ReportedNode,
    ReportListReader,
)
from slicewise.state.usage.usage_text import HEADINGS, write_head, write_plain, write_rows
from slicewise.state.usage.usage_view import NodeUsageView, describe_nodes, view_node


@click.command(short_help="Show what is allocated and used, live.")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--once", is_flag=True, help="Print once and exit, as in a pipe.")
@click.option("--idle", is_flag=True, help="Give each idle GPU a row of its own.")
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes on a terminal.",
)
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Print a JSON document for scripts, once."
)
@click.option(
    "--agent-port",
    default=AGENT_PORT,
    show_default=True,
    help="Port of the nodes' agents, which are asked where no metrics API runs.",
)
@cluster_options
def top(nodes: tuple[str, ...], once: bool, output: str | None, **flags: Any) -> None:
    """Show per node, GPU and container what is allocated and what is used.

    Use is read from the metrics API, or from the nodes' agents where none runs.
    """
    idle, interval, port = (flags.pop(each) for each in ("idle", "interval", "agent_port"))
    console = EscapingConsole()

    async def show(client: Client) -> None:
        async with _following(client) as state:
            read = partial(read_reports, ReportListReader(client), AgentReportReader(client, port))
            first = await look(state, read, nodes)
            if output == "json":
                echo_json(describe_nodes(first))
            elif once or not console.is_terminal:
                echo_text(write_plain(first, idle=idle))
            else:
                again = partial(look, state, read, nodes)
                await _redraw(console, again, idle=idle, interval=interval)

    with contextlib.suppress(KeyboardInterrupt):
        run_connected(ClusterFlags(**flags), show)


async def read_reports(
    everything: ReportListReader, agents: AgentReportReader, names: Iterable[str]
) -> Mapping[str, ReportedNode]:
    """What agents report: all at once from the metrics API, or one by one where none runs."""
    found = await everything.read()
    return await agents.read(names) if found is None else found


async def look(
    state: LiveState,
    read: Callable[[Iterable[str]], Awaitable[Mapping[str, ReportedNode]]],
    names: Sequence[str],
) -> list[NodeUsageView]:
    """The nodes that have GPUs, or those named, as they are now."""
    snapshot = state.snapshot()
    unknown = [name for name in names if name not in snapshot]
    if unknown:
        raise CommandFailure(f'node "{unknown[0]}" not found')
    states = sorted(
        (each for each in snapshot if (each.node.name in names if names else each.node.gpus)),
        key=lambda each: each.node.name,
    )
    reports = await read([each.node.name for each in states])
    return [view_node(each, state.ledger, reports.get(each.node.name)) for each in states]


@contextlib.asynccontextmanager
async def _following(client: Client) -> AsyncIterator[LiveState]:
    state = LiveState(client, await choose_settings(client, "default", warn))
    try:
        await state.start()
        yield state
    finally:
        await state.stop()


def write_table(
    nodes: Sequence[NodeUsageView], *, idle: bool = False, most: int | None = None
) -> Table:
    """The table for terminals, cut to so many rows."""
    table = Table(box=None, pad_edge=False, title=write_head(nodes), title_justify="left")
    for at, name in enumerate(HEADINGS):
        table.add_column(name, justify="right" if 0 < at < 5 else "left", no_wrap=True)
    rows = write_rows(nodes, idle=idle)
    shown = rows if most is None or len(rows) <= most else rows[: max(0, most - 1)]
    for row in shown:
        table.add_row(*(Text(cell) for cell in row.cells), style=row.style)
    if len(shown) < len(rows):
        table.add_row(
            Text(f"... {len(rows) - len(shown)} more rows: name nodes to see them"), style="dim"
        )
    return table


async def _redraw(
    console: Console,
    again: Callable[[], Awaitable[list[NodeUsageView]]],
    *,
    idle: bool,
    interval: float,
) -> None:
    """Draw until the person has seen enough."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            views = await again()
            # Title, headings and a line for the cursor stand beside the rows.
            table = write_table(views, idle=idle, most=max(5, console.height - 3))
            live.update(table, refresh=True)
            await asyncio.sleep(interval)
