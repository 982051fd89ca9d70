"""`slicewise withdraw`: takes what agents published off the Nodes, when Slicewise is removed."""

from pathlib import Path
from typing import Any, Final

import click

from slicewise.cli.cluster_access import ClusterFlags, cluster_options, run_connected
from slicewise.cli.options import read_namespaced_name
from slicewise.cli.render.terminal import echo
from slicewise.kube.client import Client
from slicewise.nodeagent.gpus.withdrawal import (
    WithdrawalPhase,
    WithdrawalSettings,
    remove_own_role,
    remove_specs,
)
from slicewise.nodeagent.gpus.withdrawal import withdraw as withdraw_nodes

_FOLDER: Final = click.Path(file_okay=False, exists=True, path_type=Path)


@click.command(short_help="Take what agents published off the Nodes.")
@click.option("--node", "nodes", multiple=True, help="Name of a Node to clean; can be given "
              "several times [default: every Node that an agent has published].")  # fmt: skip
@click.option("--settle-seconds", default=0.0, show_default=True,
              help="Look again for this long: for 5 minutes the kubelet repeats the amounts of a "
              "device plugin that is gone, so 340 leaves none behind.")  # fmt: skip
@click.option("--phase", type=click.Choice([each.value for each in WithdrawalPhase]),
              default=WithdrawalPhase.ALL.value, show_default=True,
              help="published takes off what agents wrote and leaves an annotation on each Node; "
              "amounts goes on with Nodes that have it, for what kubelets repeat; all does both."
              )  # fmt: skip
@click.option("--dissolve", metavar="NAMESPACE/NAME", help="When done, delete the ClusterRole of "
              "this name and, with it, the binding, and in the namespace the account and the "
              "Deployment of the same name, under which the chart runs this.")  # fmt: skip
@click.option("--specs", type=_FOLDER, help="Also delete our CDI specs in this folder of this "
              "machine, such as /var/run/cdi; containers that have GPUs cannot start again "
              "after that.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be taken off.")
@cluster_options
def withdraw(*, specs: Path | None, dissolve: str | None, dry_run: bool, **flags: Any) -> None:
    """Take our labels, annotations and amounts off Nodes, once no agent runs there any more.

    Pods keep running, and what other software wrote stays.
    """
    settings = WithdrawalSettings(
        names=frozenset(flags["nodes"]),
        phase=WithdrawalPhase(flags["phase"]),
        settle_seconds=flags["settle_seconds"],
        dry_run=dry_run,
    )

    async def clean(client: Client) -> int:
        count = 0
        async for done in withdraw_nodes(client, settings):
            echo(done.text)
            count += 1
        if dissolve is not None and not dry_run:
            namespace, name = read_namespaced_name("--dissolve", dissolve)
            if await remove_own_role(client, namespace, name):
                echo(f"{name} deleted")
        return count

    if not run_connected(ClusterFlags(flags["kubeconfig"], flags["context"]), clean):
        echo("nothing to take off")
    if specs is not None and not dry_run:
        for path in remove_specs(specs):
            echo(f"{path} deleted")
