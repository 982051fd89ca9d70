"""`slicewise audit`: whether every container of a node holds exactly what it was allocated.

The node's agent is asked, or, without one, the sources that the agent itself would ask.
"""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.render.console import EscapingConsole
from slicewise.cli.render.terminal import echo_json
from slicewise.diagnose.audit_report import write_audit
from slicewise.diagnose.findings_text import AUDIT_COLUMNS, sum_up_audit, write_audit_lines
from slicewise.model import SlicewiseError
from slicewise.model.styled_text import escape_cell
from slicewise.nodeagent.run import AgentOptions, audit_directly
from slicewise.nodeagent.settings import AgentSettings, Paths
from slicewise.state.probes import fetch_audit
from slicewise.state.settings import open_reader

DEFAULT_URL: Final = "http://127.0.0.1:5678"
_CODES: Final = {"clean": 0, "findings": 1}
_CANNOT_TELL: Final = 2
_PATH = click.Path(path_type=Path)


@click.command(short_help="Compare what pods hold with what they were allocated.")
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of the node's agent.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for scripts.",
)
@click.option("--direct", is_flag=True,
              help="Audit without an agent: read kubelet, API server, driver and CDI specs."
              )  # fmt: skip
@click.option(
    "--node-name",
    envvar="NODE_NAME",
    help="With --direct: name of this node [default: the machine's name].",
)
@click.option("--nvml", default="library", show_default=True,
              help="With --direct: where GPUs are read from; library is NVIDIA's driver, "
              "library:FILE an NVML of your own, simulated:FILE a YAML description.")  # fmt: skip
@click.option("--pod-resources", type=_PATH, default=Paths().pod_resources, show_default=True,
              help="With --direct: the kubelet's pod-resources socket.")  # fmt: skip
@click.option("--cdi", type=_PATH, default=Paths().cdi, show_default=True,
              help="With --direct: folder of the CDI specs that the agent writes.")  # fmt: skip
@cluster_options
def audit(url: str, output: str, direct: bool, **flags: Any) -> None:
    """Compare what pods were allocated on a node with what they hold and use.

    Exits with 0 when everything agrees, 1 with findings, 2 when it cannot be determined.
    """
    if direct:
        target = read_target(flags)
        cluster = ClusterFlags(flags["kubeconfig"], flags["context"])
        found = run_connected(
            cluster, lambda client: audit_directly(target, client, open_reader()), CannotTell
        )
        answer = write_audit(found)
    else:
        answer = _fetch(url)
    if output == "json":
        echo_json(answer)
    else:
        show_audit(answer)
    sys.exit(_CODES.get(answer["verdict"], _CANNOT_TELL))


def _fetch(url: str) -> dict[str, Any]:
    try:
        return fetch_audit(url)
    except SlicewiseError as error:
        raise CannotTell(
            f"{error}; run it on the node of an agent, or pass --url or --direct"
        ) from error


def show_audit(answer: Mapping[str, Any], console: EscapingConsole | None = None) -> None:
    """The answer for people: a table on a terminal, tabs and lines in a pipe."""
    console = console or EscapingConsole()
    if console.is_terminal:
        _show_table(answer, console)
    else:
        console.write_lines(write_audit_lines(answer))


def _show_table(answer: Mapping[str, Any], console: EscapingConsole) -> None:
    if answer["findings"]:
        table = Table(title=f"Audit of {escape_cell(answer['node'])}", show_lines=True)
        for column in AUDIT_COLUMNS:
            style = "bold red" if column == "kind" else None
            table.add_column("what to do" if column == "remedy" else column, style=style)
        for each in answer["findings"]:
            # Names of processes and pods are others' words, not markup.
            table.add_row(*(Text(escape_cell(str(each[column]))) for column in AUDIT_COLUMNS))
        console.print(table)
    for gap in answer["gaps"]:
        console.print(f"not answered: {escape_cell(gap)}", style="yellow", markup=False)
    style = {"clean": "green", "findings": "red"}.get(answer["verdict"], "yellow")
    console.print(sum_up_audit(answer), style=style, markup=False, highlight=False)


def read_target(flags: Mapping[str, Any]) -> AgentOptions:
    """The node that the flags name, and where its sources are."""
    node = flags["node_name"] or socket.gethostname().lower()
    source, _, file = flags["nvml"].partition(":")
    if source not in ("library", "simulated"):
        raise click.BadParameter(
            f"{flags['nvml']!r}: expected library or simulated:FILE", param_hint="--nvml"
        )
    paths = Paths(pod_resources=flags["pod_resources"], cdi=flags["cdi"])
    return AgentOptions(
        settings=AgentSettings(node=node, paths=paths),
        simulated=source == "simulated",
        driver_file=Path(file) if file else None,
    )
