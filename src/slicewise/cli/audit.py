"""`slicewise audit`: whether everybody on a node holds what they were promised.

The node's agent is asked, or, without one, everybody whom the agent would ask.

Exits with 0 when all is well, 1 with findings, 2 when nobody can tell.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slicewise.cli.audit_directly import audit_directly, read_audit_target
from slicewise.cli.cluster_access import CannotTell, cluster_options
from slicewise.nodeagent.audit.auditor import write_audit
from slicewise.nodeagent.settings import Paths

DEFAULT_URL: Final = "http://127.0.0.1:5678"
_CODES: Final = {"clean": 0, "findings": 1}
_CANNOT_TELL: Final = 2
# An audit that finds something looks twice, and the kubelet may take its time.
_SECONDS: Final = 60.0
_PATH = click.Path(path_type=Path)
_COLUMNS: Final = ("kind", "subject", "what", "remedy")


@click.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, help="The node's agent.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option("--direct", is_flag=True,
              help="Ask kubelet, API server and driver themselves; the flags below say where."
              )  # fmt: skip
@click.option("--node-name", envvar="NODE_NAME", help="[default: the machine's name]")
@click.option("--nvml", default="library", show_default=True,
              help="library, library:FILE, simulated or simulated:FILE.")  # fmt: skip
@click.option("--pod-resources", type=_PATH, default=Paths().pod_resources, show_default=True)
@click.option("--cdi", type=_PATH, default=Paths().cdi, show_default=True)
@cluster_options
def audit(url: str, output: str, direct: bool, **flags: Any) -> None:
    """Compare what pods were promised on a node with what they hold and use.

    Exits with 0 when all is well, 1 with findings, 2 when it cannot tell.
    """
    answer = write_audit(audit_directly(read_audit_target(flags))) if direct else fetch(url)
    if output == "json":
        click.echo(json.dumps(answer, indent=2))
    else:
        show(answer)
    sys.exit(_CODES.get(answer["verdict"], _CANNOT_TELL))


def fetch(url: str) -> dict[str, Any]:
    """What the agent at this address finds."""
    page = f"{url.rstrip('/')}/audit"
    try:
        with urllib.request.urlopen(page, timeout=_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        error.close()
        raise CannotTell(f"{page} answered {error.code}; pass --url") from error
    except (OSError, ValueError) as error:
        raise CannotTell(
            f"cannot ask {page}: {error}; run it on the node of an agent, or pass --url or --direct"
        ) from error
    if not isinstance(answer, dict) or not {"node", "verdict", "findings", "gaps"} <= answer.keys():
        raise CannotTell(f"{page} is not the page of an agent; pass --url")
    return answer


def show(answer: Mapping[str, Any], console: Console | None = None) -> None:
    """The answer for people: a table on a terminal, tabs and lines in a pipe."""
    console = console or Console()
    if console.is_terminal:
        _show_table(answer, console)
    else:
        for line in write_lines(answer):
            console.file.write(f"{line}\n")


def write_lines(answer: Mapping[str, Any]) -> Sequence[str]:
    """One line per finding, its columns set apart by tabs, then what could not be asked."""
    findings = [[_plain(each[column]) for column in _COLUMNS] for each in answer["findings"]]
    head = [[column.upper() for column in _COLUMNS]] if findings else []
    rows = ["\t".join(row) for row in (*head, *findings)]
    return [*rows, *(f"not answered: {_plain(gap)}" for gap in answer["gaps"]), _sum_up(answer)]


def _show_table(answer: Mapping[str, Any], console: Console) -> None:
    if answer["findings"]:
        table = Table(title=f"Audit of {_plain(answer['node'])}", show_lines=True)
        for column in _COLUMNS:
            style = "bold red" if column == "kind" else None
            table.add_column("what to do" if column == "remedy" else column, style=style)
        for each in answer["findings"]:
            # Names of processes and pods are others' words, not markup.
            table.add_row(*(Text(_plain(each[column])) for column in _COLUMNS))
        console.print(table)
    for gap in answer["gaps"]:
        console.print(f"not answered: {_plain(gap)}", style="yellow", markup=False)
    style = {"clean": "green", "findings": "red"}.get(answer["verdict"], "yellow")
    console.print(_sum_up(answer), style=style, markup=False, highlight=False)


def _sum_up(answer: Mapping[str, Any]) -> str:
    count = len(answer["findings"])
    verdict = {
        "clean": "everybody holds what they were promised",
        "findings": f"{count} finding{'' if count == 1 else 's'}",
    }.get(answer["verdict"], "cannot tell: nothing wrong was seen, but not everything was")
    return f"{_plain(answer['node'])}: {verdict}"


def _plain(text: object) -> str:
    return "".join(each if each.isprintable() else "?" for each in str(text))
