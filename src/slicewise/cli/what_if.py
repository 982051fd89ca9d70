"""`slicewise what-if -f pod.yaml`: would it fit, where, and what would have to change."""

import sys
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
from slicewise.cli.extender_target import read_target, target_options
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.explain.answer_text import describe_what_if
from slicewise.explain.defrag_text import describe_node_groups
from slicewise.explain.manifest_pods import check_template
from slicewise.explain.manifests import (
    ManifestError,
    Manifests,
    PodTemplate,
    parse_documents,
    read_manifests,
)
from slicewise.extender.client.calls import ExtenderTarget
from slicewise.extender.client.questions import ask_address, ask_cluster, ask_node_groups
from slicewise.kube.client import Client
from slicewise.model import SlicewiseError


@click.command("what-if", short_help="Say where pods would go if created now.")
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
    "new nodes of each group would take of the pods that wait now, and which pods need none.",
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
    """Say where the pods of manifests would go if they were created now, one after the other.

    Exits with 0 when all of them fit, 1 when one does not, 2 when that cannot be determined.
    """
    target, groups = read_target(flags), flags.pop("node_template")
    if bool(files) == (groups is not None):
        raise click.UsageError("pass -f for pods, or --node-template for nodes")
    if groups is not None:
        _tell_groups(target, groups, ClusterFlags(**flags), quiet=output == "json")
    manifests = read_files(*files)
    if replicas is not None:
        resized = [_resize(each, replicas) for each in manifests.templates]
        manifests = replace(manifests, templates=resized)
    if target.url:
        try:
            answer = ask_address(target, manifests.templates, namespace or "default")
        except SlicewiseError as error:
            raise CannotTell(str(error)) from error
    else:

        async def ask(client: Client) -> dict[str, Any]:
            return await ask_cluster(client, target, manifests, namespace)

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
    for line in () if quiet else describe_node_groups(answer):
        echo(line)
    raise SystemExit(0 if answer["fits"] else 1)


def read_files(*paths: Path) -> Manifests:
    """Every pod template in these files and folders, in the order given, and their claims."""
    try:
        listed = [
            read_manifests(str(file), read_text(file))
            for path in paths
            for file in find_files(path)
        ]
        found = [template for each in listed for template in each.templates]
        for template in found:
            check_template(template)
    except ManifestError as error:
        raise CannotTell(str(error)) from error
    if not found:
        where = ", ".join(map(str, paths))
        raise CannotTell(f"{where}: expected a pod, or a workload with a pod template")
    return Manifests(found, [claim for each in listed for claim in each.claims])


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


def _resize(template: PodTemplate, replicas: int) -> PodTemplate:
    if template.per_node:
        return template
    return replace(template, count=replicas)
