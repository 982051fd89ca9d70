"""`kubectl inspect gpushare`: who holds how much GPU memory, node by node and GPU by GPU.

Everything is read from the API server, so that it works beside any extender and without one.
"""

import json
from typing import Any

import click
import yaml

from slicewise.cli.cluster_access import (
    ClusterFlags,
    CommandFailure,
    cluster_options,
    run_connected,
)
from slicewise.cli.goflags import GoCommand, go_switch, klog_flags, version_flag
from slicewise.cli.render.logs import configure_plain_logs
from slicewise.cli.render.terminal import echo, echo_text
from slicewise.explain.gpushare_inspect import InspectedNode, read_nodes
from slicewise.explain.gpushare_text import describe, show_details, show_summary
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.node_details import find_node_details, list_node_details
from slicewise.kube.reads import list_all
from slicewise.model.styled_text import escape_json
from slicewise.state.settings import open_reader
from slicewise.state.trust import find_trust


@click.command("inspect-gpushare", cls=GoCommand, short_help="Show the GPU memory that pods hold.")
@click.argument("node", required=False)
@go_switch("-d", "--details", help="Print a table per node, with a row per pod.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "wide"]),
    help="JSON or YAML for scripts, or wide for more columns.",
)
@cluster_options
@click.option("-v", "--v", type=int, expose_value=False, hidden=True)
@klog_flags
@version_flag("kubectl-inspect-gpushare")
def main(node: str | None, details: bool, output: str | None, **cluster: Any) -> None:
    """Show the GPU memory that pods hold, on every node or on NODE alone."""
    configure_plain_logs()
    nodes = run_connected(ClusterFlags(**cluster), lambda client: gather(client, node))
    if node is not None and not nodes:
        echo(f"node {node} has no aliyun.com/gpu-mem to share", err=True)
    text = render(nodes, details=details, output=output)
    echo_text(escape_json(text) if output == "json" else text)


async def gather(client: Client, name: str | None) -> list[InspectedNode]:
    """The cluster's nodes with their GPUs and pods, or the one of this name."""
    reader = open_reader()
    if name is None:
        nodes, selector = await list_node_details(client, reader), sources.LIVE_PODS
    else:
        found = await find_node_details(client, reader, name)
        if found is None:
            raise CommandFailure(f'node "{name}" not found')
        nodes, selector = [found], f"spec.nodeName={name},{sources.LIVE_PODS}"
    pods = await list_all(client, sources.pods(reader, selector))
    return read_nodes(nodes, pods, trust=await find_trust(client))


def render(nodes: list[InspectedNode], *, details: bool = False, output: str | None = None) -> str:
    """The nodes in the form that was asked for."""
    if output == "json":
        return json.dumps(describe(nodes), indent=2) + "\n"
    if output == "yaml":
        return yaml.safe_dump(describe(nodes), sort_keys=False)
    show = show_details if details else show_summary
    return show(nodes, wide=output == "wide")
