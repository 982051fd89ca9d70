"""`slicewise what-if -f pod.yaml`: would it fit, where, and what would have to change."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    open_reader,
    run_connected,
)
from slicewise.cli.extender_client import (
    ExtenderTarget,
    fetch,
    open_call,
    read_target,
    target_options,
)
from slicewise.cli.render.explain_text import describe_what_if
from slicewise.explain.candidates import LeftOut, SchedulerView, add_changes
from slicewise.explain.manifests import PodTemplate, read_templates
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.lists import list_all
from slicewise.kube.node_details import list_node_details

Wish = tuple[dict[str, Any], list[str] | None, LeftOut]


@click.command("what-if", short_help="Say where pods would go if they came now.")
@click.option(
    "-f",
    "--filename",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="Manifests, a folder of them, or - for standard input; may be given again.",
)
@click.option("-n", "--namespace", help="Of manifests that name none [default: the context's].")
@click.option("--replicas", type=click.IntRange(0), help="In place of each workload's own number.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The answer for scripts.")
@target_options
@cluster_options
def what_if(
    files: tuple[Path, ...],
    namespace: str | None,
    replicas: int | None,
    output: str | None,
    **flags: Any,
) -> None:
    """Say where the pods of manifests would go if they came now, one after the other.

    Ends with 0 when all of them fit, 1 when one does not, and 2 when nobody can tell.
    """
    oracle, templates = read_target(flags), read_templates(*files)
    if replicas is not None:
        templates = [_resize(each, replicas) for each in templates]
    if oracle.url:
        answer = ask_address(oracle, templates, namespace or "default")
    else:

        async def ask(client: Client) -> dict[str, Any]:
            return await ask_cluster(client, oracle, templates, namespace)

        answer = run_connected(ClusterFlags(**flags), ask, CannotTell)
    if output == "json":
        click.echo(json.dumps(answer, indent=2))
    else:
        for line in describe_what_if(answer):
            click.echo(line)
    raise SystemExit(0 if answer["fits"] else 1)


def ask_address(
    oracle: ExtenderTarget, templates: Sequence[PodTemplate], namespace: str
) -> dict[str, Any]:
    """What an extender says, which knows GPUs and nothing of taints and selectors."""
    daemon = next((each.name for each in templates if each.per_node), None)
    if daemon is not None:
        raise CannotTell(
            f"DaemonSet {daemon}: its nodes are known to the API alone; leave --url out"
        )
    wishes: list[Wish] = [(pod, None, []) for pod in _make_all(templates, namespace)]
    return _combine(fetch(oracle, "/what-if", body=_body(wishes)) if wishes else _NOTHING, wishes)


async def ask_cluster(
    client: Client,
    oracle: ExtenderTarget,
    templates: Sequence[PodTemplate],
    namespace: str | None = None,
) -> dict[str, Any]:
    """What the cluster's state says, about the nodes the scheduler would ask about."""
    reader = open_reader()
    machines = await list_node_details(client, reader)
    candidates = SchedulerView(machines, await list_all(client, sources.pods(reader)))
    home = namespace or client.access.namespace
    wishes = [wish for each in templates for wish in _wish(each, candidates, home)]
    if not wishes:
        return _NOTHING
    async with open_call(client, oracle) as ask:
        answer = _combine(await ask("/what-if", body=_body(wishes)), wishes)
        first, (pod, _, left_out) = answer["pods"][0], wishes[0]
        # Later pods were refused by a cluster that has the earlier ones on it.
        await add_changes(ask, pod, first, left_out)
        return answer


_NOTHING: dict[str, Any] = {"fits": True, "fitting": 0, "pods": []}


def _resize(template: PodTemplate, replicas: int) -> PodTemplate:
    if template.per_node:
        return template
    return PodTemplate(template.name, template.namespace, template.pod, replicas)


def _make_all(templates: Sequence[PodTemplate], namespace: str) -> Iterator[dict[str, Any]]:
    for each in templates:
        for at in range(each.count):
            yield each.make(at, namespace)


def _wish(template: PodTemplate, candidates: SchedulerView, namespace: str) -> Iterator[Wish]:
    """Each pod with the nodes it may go to; a DaemonSet has one for each of them."""
    names, left_out = candidates.choose(template.pod["spec"])
    if template.per_node:
        for at, name in enumerate(names):
            yield template.make(at, namespace), [name], []
        return
    for at in range(template.count):
        yield template.make(at, namespace), names, left_out


def _body(wishes: Sequence[Wish]) -> dict[str, Any]:
    return {"Pods": [{"Pod": pod, "NodeNames": names} for pod, names, _ in wishes]}


def _combine(answer: dict[str, Any], wishes: Sequence[Wish]) -> dict[str, Any]:
    """The answer with the nodes that were never asked about."""
    for told, (_, _, left_out) in zip(answer["pods"], wishes, strict=True):
        if left_out and not told["fits"]:
            told["leftOut"] = left_out
    return answer
