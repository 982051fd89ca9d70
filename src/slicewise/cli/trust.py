"""`slicewise trust`: the keys that records are signed with, the take-over, original agents."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from slicewise.cli.cluster_access import (
    ClusterFlags,
    CommandFailure,
    cluster_options,
    run_connected,
)
from slicewise.cli.options import read_namespaced_name, trust_option
from slicewise.cli.render.terminal import echo, echo_json
from slicewise.kube.client import Client
from slicewise.model import TrustPolicy, count
from slicewise.state import trust_admin
from slicewise.state.settings import open_reader
from slicewise.state.trust import SIGNING_SECRET
from slicewise.state.trust_admin import TrustPlaces
from slicewise.state.trust_text import describe_status, list_some, write_status
from slicewise.trust import write_time

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@click.group(short_help="See and change whose records are believed.")
def trust() -> None:
    """See and change whose records are believed: keys, the take-over, original agents."""


def _place_options(command: F) -> F:
    """The flags that say where keys and policy are, and in which cluster."""
    secret = click.option(
        "--signing-secret",
        default="/".join(SIGNING_SECRET),
        show_default=True,
        help="namespace/name of the Secret with the extender's private keys.",
    )
    return cluster_options(trust_option(secret(command)))


def _run(flags: dict[str, Any], work: Callable[[Client, TrustPlaces], Awaitable[T]]) -> T:
    places = TrustPlaces(
        read_namespaced_name("--trust-configmap", flags.pop("trust_configmap")),
        read_namespaced_name("--signing-secret", flags.pop("signing_secret")),
    )
    return run_connected(ClusterFlags(**flags), lambda client: work(client, places))


@trust.command(short_help="Show keys, the take-over and signed pods.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON, for scripts.")
@_place_options
def status(output: str | None, **flags: Any) -> None:
    """Show keys and which signs, the take-over, original agents, and whose records are signed."""
    now = int(time.time())
    found = _run(
        flags,
        lambda client, places: trust_admin.read_status(client, open_reader(), places, now),
    )
    if output == "json":
        echo_json(write_status(found))
        return
    for line in describe_status(found, now):
        echo(line)


@trust.command(short_help="Make a new signing key.")
@_place_options
def rotate(**flags: Any) -> None:
    """Make a new signing key; it is published at once, and signs after the overlap.

    The key before it is believed until no pod carries its signature any more.
    """
    made = _run(
        flags,
        lambda client, places: trust_admin.rotate_key(client, places, int(time.time())),
    )
    echo(f"key {made} made; the extender publishes it, and signs with it after the overlap")


@trust.command(short_help="Stop believing the signatures of a key.")
@click.argument("key")
@click.option(
    "--public-only",
    is_flag=True,
    help="Revoke it though the Secret holds none of the published keys, as with --signing-key.",
)
@_place_options
def revoke(key: str, public_only: bool, **flags: Any) -> None:
    """Stop believing signatures of KEY, by its identifier or the beginning of it.

    Pods that carry its signature keep running, and their records are reported as forged; their
    containers do not start again before a take-over has signed them again.
    """
    name, renewed = _run(
        flags,
        lambda client, places: trust_admin.revoke_key(
            client, places, key, int(time.time()), public_only=public_only
        ),
    )
    echo(f"key {name} revoked{'; a new key was made in its place' if renewed else ''}")


@trust.group("take-over", short_help="Begin or end a take-over of running pods.")
def take_over() -> None:
    """Take over pods that ran before records were signed."""


@take_over.command(short_help="Believe and sign pods that run now.")
@_place_options
def begin(**flags: Any) -> None:
    """Believe unsigned records of pods that run now, and sign those that agree with their node."""
    policy = _run(
        flags,
        lambda client, places: trust_admin.begin_take_over(client, places, int(time.time())),
    )
    echo(f"take-over begun at {write_time(policy.takeover_began)}")


@take_over.command()
@click.option("--force", is_flag=True, help="End it even if pods are left that are not signed.")
@_place_options
def end(force: bool, **flags: Any) -> None:
    """Stop believing unsigned records."""
    now = int(time.time())

    async def work(client: Client, places: TrustPlaces) -> TrustPolicy:
        found = await trust_admin.read_status(client, open_reader(), places, now)
        if found.waiting and not force:
            raise CommandFailure(
                f"{count(len(found.waiting), 'running pod')} not signed yet: "
                f"{list_some(found.waiting)}; `slicewise trust status` says why, and --force "
                "ends it anyway"
            )
        return await trust_admin.end_take_over(client, places, now)

    policy = _run(flags, work)
    echo(f"take-over ended at {write_time(policy.takeover_ended)}")


@trust.group("original-agents", short_help="Name nodes whose agents cannot verify.")
def original_agents() -> None:
    """Name the nodes that keep an original system's agent, which cannot verify records."""


@original_agents.command(short_help="Believe unsigned records on nodes.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@_place_options
def add(nodes: tuple[str, ...], **flags: Any) -> None:
    """Believe unsigned records on NODE, a name or a pattern like 'old-*'."""
    _show_nodes(
        _run(
            flags,
            lambda client, places: trust_admin.change_original_agents(client, places, add=nodes),
        )
    )


@original_agents.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@_place_options
def remove(nodes: tuple[str, ...], **flags: Any) -> None:
    """Stop believing unsigned records on NODE."""
    _show_nodes(
        _run(
            flags,
            lambda client, places: trust_admin.change_original_agents(client, places, remove=nodes),
        )
    )


def _show_nodes(nodes: tuple[str, ...]) -> None:
    echo(f"nodes of original agents: {', '.join(nodes) or 'none'}")
