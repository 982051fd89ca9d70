"""`slicewise cordon NODE GPU` and `uncordon`: close single GPUs to new pods, and open them."""

from typing import Any

import click

from slicewise.cli.cluster_access import (
    ClusterFlags,
    cluster_options,
    run_connected,
)
from slicewise.cli.render.terminal import echo
from slicewise.kube.client import Client
from slicewise.state.cordons import cordon_gpus, uncordon_gpus
from slicewise.state.settings import open_reader


@click.command(short_help="Close single GPUs of a node to new pods.")
@click.argument("node")
@click.argument("gpus", nargs=-1, required=True, metavar="GPU...")
@cluster_options
def cordon(node: str, gpus: tuple[str, ...], **cluster: Any) -> None:
    """Keep new pods off GPU of NODE, by index or UUID; pods that are on it stay."""

    async def close(client: Client) -> list[str]:
        return await cordon_gpus(client, open_reader(), node, gpus)

    for line in run_connected(ClusterFlags(**cluster), close):
        echo(line)


@click.command(short_help="Open single GPUs of a node to new pods again.")
@click.argument("node")
@click.argument("gpus", nargs=-1, metavar="[GPU...]")
@click.option("--all", "every", is_flag=True, help="Open every GPU of the node.")
@cluster_options
def uncordon(node: str, gpus: tuple[str, ...], every: bool, **cluster: Any) -> None:
    """Let new pods use GPU of NODE again, by index or UUID."""
    if bool(gpus) == every:
        raise click.UsageError("name the GPUs, or pass --all")

    async def reopen(client: Client) -> list[str]:
        return await uncordon_gpus(client, open_reader(), node, gpus)

    for line in run_connected(ClusterFlags(**cluster), reopen):
        echo(line)
