"""`slicewise what-if -f pod.yaml`: would it fit, where, and what would have to change."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from slicewise.cli.cluster_access import (
    CannotTell,
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.defrag.node_groups import ask_node_groups, describe_group_text
from slicewise.cli.extender_client import (
    ExtenderTarget,
    add_suggestions,
    fetch,
    open_call,
    read_target,
    target_options,
)
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.answer_text import describe_what_if
from slicewise.explain.candidates import LeftOut
from slicewise.explain.manifest_pods import check_template
from slicewise.explain.manifests import (
    ManifestError,
    PodTemplate,
    parse_documents,
    read_templates,
)
from slicewise.kube.client import Client
from slicewise.state.candidates import SchedulerView
from slicewise.state.settings import open_reader

WantedPod = tuple[dict[str, Any], list[str] | None, LeftOut]


@click.command("what-if", short_help="Say where pods would go if they came now.")
@click.option(
    "-f",
    "--filename",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File of manifests, folder of such files, or - for standard input; can be repeated.",
)
@click.option(
    "-n", "--namespace", help="Namespace of manifests that name none [default: the context's]."
)
@click.option(
    "--replicas",
    type=click.IntRange(0),
    help="Number of pods of each workload, in place of its own.",
)
@click.option(
    "--node-template",
    type=click.Path(path_type=Path),
    help="In place of -f: file of Node manifests, one for each group of an autoscaler; says what "
    "new nodes of each group would take of the pods that wait now, and who needs none.",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON, for scripts.")
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

    Exits with 0 when all of them fit, 1 when one does not, 2 when that cannot be determined.
    """
    target, groups = read_target(flags), flags.pop("node_template")
    if bool(files) == (groups is not None):
        raise click.UsageError("pass -f for pods, or --node-template for nodes")
    if groups is not None:
        _tell_groups(target, groups, ClusterFlags(**flags), quiet=output == "json")
    templates = read_files(*files)
    if replicas is not None:
        templates = [_resize(each, replicas) for each in templates]
    if target.url:
        answer = ask_address(target, templates, namespace or "default")
    else:

        async def ask(client: Client) -> dict[str, Any]:
            return await ask_cluster(client, target, templates, namespace)

        answer = run_connected(ClusterFlags(**flags), ask, CannotTell)
    if output == "json":
        echo_json(answer)
    else:
        for line in describe_what_if(answer):
            echo(line)
    raise SystemExit(0 if answer["fits"] else 1)


def _tell_groups(
    target: ExtenderTarget, path: Path, cluster: ClusterFlags, *, quiet: bool
) -> NoReturn:
    """Print what new nodes would take, and exit."""
    try:
        documents = list(parse_documents(str(path), read_text(path)))
    except ManifestError as error:
        raise CannotTell(str(error)) from error

    async def ask(client: Client) -> dict[str, Any]:
        return await ask_node_groups(client, target, documents)

    answer = run_connected(cluster, ask, CannotTell)
    if quiet:
        echo_json(answer)
    for line in () if quiet else describe_group_text(answer):
        echo(line)
    raise SystemExit(0 if answer["fits"] else 1)


def read_files(*paths: Path) -> list[PodTemplate]:
    """Every pod template in these files and folders, in the order given."""
    try:
        found = [
            template
            for path in paths
            for file in find_files(path)
            for template in read_templates(str(file), read_text(file))
        ]
        for template in found:
            check_template(template)
    except ManifestError as error:
        raise CannotTell(str(error)) from error
    if not found:
        where = ", ".join(map(str, paths))
        raise CannotTell(f"{where}: expected a pod, or a workload with a pod template")
    return found


def find_files(path: Path) -> list[Path]:
    """The file itself, or the manifests of a folder."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json"))


def read_text(path: Path) -> str:
    """A file's text, or that of standard input."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except OSError as error:
        raise CannotTell(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CannotTell(f"cannot read {path}: not YAML: {error}") from error


def ask_address(
    target: ExtenderTarget, templates: Sequence[PodTemplate], namespace: str
) -> dict[str, Any]:
    """What an extender says, which knows GPUs and nothing of taints and selectors."""
    daemon = next((each.name for each in templates if each.per_node), None)
    if daemon is not None:
        raise CannotTell(
            f"DaemonSet {daemon}: its nodes are known to the API alone; leave --url out"
        )
    wanted: list[WantedPod] = [(pod, None, []) for pod in _make_all(templates, namespace)]
    return _combine(fetch(target, "/what-if", body=_body(wanted)) if wanted else _NOTHING, wanted)


async def ask_cluster(
    client: Client,
    target: ExtenderTarget,
    templates: Sequence[PodTemplate],
    namespace: str | None = None,
) -> dict[str, Any]:
    """What the cluster's state says, about the nodes the scheduler would ask about."""
    candidates = await SchedulerView.read(client, open_reader())
    home = namespace or client.access.namespace
    wanted = [each_pod for each in templates for each_pod in _want(each, candidates, home)]
    if not wanted:
        return _NOTHING
    async with open_call(client, target) as ask:
        answer = _combine(await ask("/what-if", _body(wanted)), wanted)
        first, (pod, _, left_out) = answer["pods"][0], wanted[0]
        # Later pods were refused by a cluster that has the earlier ones on it.
        await add_suggestions(ask, pod, first, left_out)
        return answer


_NOTHING: dict[str, Any] = {"fits": True, "fitting": 0, "pods": []}


def _resize(template: PodTemplate, replicas: int) -> PodTemplate:
    if template.per_node:
        return template
    return replace(template, count=replicas)


def _make_all(templates: Sequence[PodTemplate], namespace: str) -> Iterator[dict[str, Any]]:
    for each in templates:
        for at in range(each.count):
            yield each.make(at, namespace)


def _want(template: PodTemplate, candidates: SchedulerView, namespace: str) -> Iterator[WantedPod]:
    """Each pod with the nodes it may go to; a DaemonSet has one for each of them."""
    names, left_out = candidates.choose(template.pod["spec"])
    if template.per_node:
        for at, name in enumerate(names):
            yield template.make(at, namespace), [name], []
        return
    for at in range(template.count):
        yield template.make(at, namespace), names, left_out


def _body(wanted: Sequence[WantedPod]) -> dict[str, Any]:
    return {"Pods": [{"Pod": pod, "NodeNames": names} for pod, names, _ in wanted]}


def _combine(answer: dict[str, Any], wanted: Sequence[WantedPod]) -> dict[str, Any]:
    """The answer with the nodes that were never asked about."""
    for told, (_, _, left_out) in zip(answer["pods"], wanted, strict=True):
        if left_out and not told["fits"]:
            told["leftOut"] = left_out
    return answer
