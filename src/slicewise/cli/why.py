"""`slicewise why POD`: why a pod is where it is, or nowhere, and what would change that."""

from typing import Any

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.extender_target import read_target, target_options
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.answer_text import describe, fits_somewhere
from slicewise.extender.client.calls import fetch
from slicewise.extender.client.questions import explain_pod
from slicewise.kube.client import Client
from slicewise.model import SlicewiseError


@click.command(short_help="Say why a pod is where it is, or nowhere.")
@click.argument("pod")
@click.option("-n", "--namespace", help="Namespace of the pod [default: the context's].")
@click.option("--node", help="Explain this node alone.")
@click.option("--all", "every", is_flag=True, help="Print every node, not only the nearest ten.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON, for scripts.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@target_options
@cluster_options
def why(pod: str, namespace: str | None, node: str | None, **flags: Any) -> None:
    """Say, per node and GPU, what POD lacks and the smallest change that would fit.

    Exits with 0 when the pod has a node or could have one now, 1 when no node can take it, 2 when
    that cannot be determined.
    """
    every, output, as_json = (flags.pop(each) for each in ("every", "output", "as_json"))
    target = read_target(flags)
    space, _, name = pod.rpartition("/")
    if target.url:
        query = {"pod": f"{space or namespace or 'default'}/{name}"}
        try:
            answer = fetch(target, "/explain", {**query, **({"node": node} if node else {})})
        except SlicewiseError as error:
            raise CannotTell(str(error)) from error
    else:

        async def ask(client: Client) -> dict[str, Any]:
            home = space or namespace or client.access.namespace
            return await explain_pod(client, target, home, name, node)

        answer = run_connected(ClusterFlags(**flags), ask, CannotTell)
    if as_json or output == "json":
        echo_json(answer)
    else:
        for line in describe(answer, most=None if every or node else 10):
            echo(line)
    raise SystemExit(0 if fits_somewhere(answer) else 1)
