"""`slicewise why POD`: why a pod is where it is, or nowhere, and what would change that."""

from typing import Any, Final

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
    warn,
)
from slicewise.cli.defrag.command import open_look
from slicewise.cli.extender_client import (
    ExtenderTarget,
    add_suggestions,
    fetch,
    open_call,
    read_target,
    target_options,
)
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.answer_text import describe, fits_somewhere
from slicewise.explain.defrag_plans import FEW_MOVES, describe_plan
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.reads import read_one
from slicewise.placement.defrag import SearchLimits
from slicewise.state.candidates import SchedulerView
from slicewise.state.claim_queries import explain_claims
from slicewise.state.settings import open_reader

_FEW: Final = SearchLimits(moves=FEW_MOVES, trials=500)


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
        echo_json(answer)
    else:
        for line in describe(answer, most=None if every or node else 10):
            echo(line)
    raise SystemExit(0 if fits_somewhere(answer) else 1)


async def explain(
    client: Client, target: ExtenderTarget, namespace: str, name: str, node: str | None = None
) -> dict[str, Any]:
    """The answer for a pod that exists, about the nodes the scheduler would ask about."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    body = await read_one(client, Call("get", "pods", path), dict)
    if body is None:
        raise CannotTell(f"pod '{namespace}/{name}': not found")
    claimed = await explain_claims(client, body)
    answer = await _explain_request(client, target, body, node)
    return {**answer, "claims": claimed} if claimed else answer


async def _explain_request(
    client: Client, target: ExtenderTarget, body: dict[str, Any], node: str | None
) -> dict[str, Any]:
    """The answer for what the pod asks for by resource names."""
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
    if node is None and not fits_somewhere(answer):
        answer |= await _find_moves(client, target, body["metadata"]["uid"])
    return {**answer, "leftOut": left_out} if left_out else answer


async def _find_moves(client: Client, target: ExtenderTarget, uid: str) -> dict[str, Any]:
    """A few moves after which the pod would fit, if there are such and they may be looked for."""
    try:
        async with open_look(client, target) as look:
            view = await look()
            pod = next((each for each in view.waiting() if each.uid == uid), None)
            if pod is None:
                return {}
            query = view.ask(pod)
            outcome = view.plan(query, _FEW)
            if outcome.plan is None or not outcome.plan.moves:
                return {}
            return {"afterMoves": describe_plan(query, outcome, view.obstacles)}
    except (RefusedError, CannotTell) as error:
        # The answer itself is there already.
        warn(f"moves that would make room were not looked for: {error}")
        return {}
