"""`slicewise why POD`: why a pod is where it is, or nowhere, and what would change that."""

import json
from typing import Any

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.extender_client import (
    ExtenderTarget,
    add_suggestions,
    fetch,
    open_call,
    read_target,
    target_options,
)
from slicewise.cli.render.explain_text import describe, fits_somewhere
from slicewise.kube.client import Call, Client
from slicewise.kube.reads import read_one
from slicewise.state.candidates import SchedulerView
from slicewise.state.live import open_reader


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
        answer = fetch(target, "/explain", {**query, **({"node": node} if node else {})})
    else:

        async def ask(client: Client) -> dict[str, Any]:
            home = space or namespace or client.access.namespace
            return await explain(client, target, home, name, node)

        answer = run_connected(ClusterFlags(**flags), ask, CannotTell)
    if as_json or output == "json":
        click.echo(json.dumps(answer, indent=2))
    else:
        for line in describe(answer, most=None if every or node else 10):
            click.echo(line)
    raise SystemExit(0 if fits_somewhere(answer) else 1)


async def explain(
    client: Client, target: ExtenderTarget, namespace: str, name: str, node: str | None = None
) -> dict[str, Any]:
    """The answer for a pod that exists, about the nodes the scheduler would ask about."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    body = await read_one(client, Call("get", "pods", path), dict)
    if body is None:
        raise CannotTell(f"pod '{namespace}/{name}': not found")
    candidates = await SchedulerView.read(client, open_reader())
    names, left_out = candidates.choose(body["spec"], placed=True)
    if node is not None:
        names = [each for each in names if each == node]
        left_out = [each for each in left_out if each["node"] == node]
        if not names and not left_out:
            raise CannotTell(f'node "{node}" not found')
    async with open_call(client, target) as ask:
        answer = await ask("/explain", {"Pod": body, "NodeNames": names})
        await add_suggestions(ask, body, answer, left_out)
    return {**answer, "leftOut": left_out} if left_out else answer
