"""`slicewise doctor`: checks everything placement depends on, and says what to do about it.

It only reads, and says so of what it was not allowed to read.
"""

from pathlib import Path
from typing import Any

import click

from slicewise.cli.cluster_access import (
    FILE,
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
    warn,
)
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.diagnose.findings import FindingSeverity, describe_findings
from slicewise.diagnose.findings_text import summarise, write_findings
from slicewise.state.cluster_check import ClusterCheck, check_cluster
from slicewise.state.usage.node_reports import AGENT_PORT


@click.command(short_help="Find what keeps pods from their GPUs.")
@click.option(
    "--scheduler-config",
    type=FILE,
    help="Check this file of kube-scheduler --config [default: as found in the cluster].",
)
@click.option(
    "--extender", help="Check the extender at this address too, like http://127.0.0.1:3456."
)
@click.option(
    "--agent-port",
    default=AGENT_PORT,
    show_default=True,
    help="Port on which the nodes' agents listen.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too, not only for problems.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON, for scripts.")
@cluster_options
def doctor(strict: bool, output: str | None, **flags: Any) -> None:
    """Find what keeps pods from getting their GPUs, and say what to do about it.

    Exits with 0 when there is no problem, 1 when there is one, 2 when the cluster cannot be read.
    """
    file: Path | None = flags.pop("scheduler_config")
    what = ClusterCheck(
        scheduler_config=None if file is None else (str(file), _read_text(file)),
        extender=flags.pop("extender"),
        agent_port=flags.pop("agent_port"),
        warn=warn,
    )
    findings = run_connected(
        ClusterFlags(**flags), lambda client: check_cluster(client, what), CannotTell
    )
    if output == "json":
        echo_json(describe_findings(findings))
    else:
        for line in write_findings(findings):
            echo(line)
        echo(summarise(findings))
    failing = {FindingSeverity.PROBLEM} | ({FindingSeverity.WARNING} if strict else set())
    raise SystemExit(1 if any(each.severity in failing for each in findings) else 0)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotTell(f"cannot read {path}: {error}") from error
