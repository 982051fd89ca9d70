"""The slicewise-testbed command: builds the binaries, starts a cluster, lists and removes it."""

from collections.abc import Iterable
from pathlib import Path

import click

from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.binaries import find_binaries
from slicewise_testbed.build import ensure_binaries, pin_version
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.packages import ensure_packages
from slicewise_testbed.real_nodes import RealNodes
from slicewise_testbed.runtimes import ensure_packaged_containerd
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed, living, sweep

_KUBECONFIG = "kubeconfig"


class Command(click.Group):
    """A group that shows the testbed's errors as one line."""

    def invoke(self, ctx: click.Context) -> object:
        """What the command returns; an error ends the program with its line."""
        try:
            return super().invoke(ctx)
        except TestbedError as broken:
            raise click.ClickException(str(broken)) from broken


@click.group(cls=Command)
def main() -> None:
    """A real Kubernetes cluster on this machine, for trying and testing."""


@main.command()
def build() -> None:
    """Build the Kubernetes binaries once, and install what real nodes need besides."""
    folder = ensure_binaries(_say)
    try:
        ensure_packages(_say)
        ensure_packaged_containerd(_say)
    except TestbedError as broken:
        # A control plane and simulated nodes do without.
        _say(str(broken))
    click.echo(folder)


@main.command("pin")
@click.argument("version")
def pin_command(version: str) -> None:
    """Write the pins of a Kubernetes VERSION such as v1.34.10, so that it can be built and run."""
    click.echo(pin_version(version, _say))


@main.command()
@click.option("--nodes", default=1, show_default=True, help="Real nodes; they need root.")
@click.option("--fake-nodes", default=0, show_default=True, help="Simulated nodes.")
@click.option(
    "--fake-resource",
    "resources",
    multiple=True,
    metavar="NAME=AMOUNT",
    help="What each simulated node offers, such as nvidia.com/gpu=8; may be repeated.",
)
def up(nodes: int, fake_nodes: int, resources: tuple[str, ...]) -> None:
    """Start a cluster, print the path of its kubeconfig, and leave it running."""
    for bed in _lasting():
        raise TestbedError(f"{bed.folder} is up already; `slicewise-testbed down` removes it")
    capacity = dict(_read_resources(resources))
    ensure_binaries(_say)
    if nodes:
        ensure_packages(_say)
    bed = Testbed.start(lasting=True)
    try:
        plane = _fill(bed, nodes, fake_nodes, capacity)
    except BaseException:
        bed.close()
        raise
    _say(f"kubectl: {plane.binaries.path('kubectl')}")
    _say("remove it with: slicewise-testbed down")
    click.echo(_kubeconfig(bed))


@main.command()
def down() -> None:
    """Remove every cluster that `up` left running, and what killed test runs left behind."""
    for bed in _lasting():
        bed.close()
        click.echo(f"removed {bed.folder}")
    sweep(older_than_seconds=0)


@main.command()
def status() -> None:
    """List the clusters of this user and their processes."""
    for bed in living():
        kind = "up" if bed.lasting else "held by a test run"
        click.echo(f"{bed.folder}  {kind}  KUBECONFIG={_kubeconfig(bed)}")
        click.echo(f"  {' '.join(bed.processes())}")


def _fill(bed: Testbed, nodes: int, fake_nodes: int, capacity: dict[str, str]) -> ControlPlane:
    _say("starting the control plane")
    plane = ControlPlane(bed, find_binaries()).start()
    if nodes:
        _say(f"starting {nodes} real nodes")
        RealNodes(plane).add(*(f"real-{number}" for number in range(nodes)))
    simulated = SimulatedNodes(plane).start()
    if fake_nodes:
        _say(f"adding {fake_nodes} simulated nodes")
        simulated.add(SimulatedNode(f"fake-{n:04}", capacity) for n in range(fake_nodes))
    _kubeconfig(bed).touch(mode=0o600)
    _kubeconfig(bed).write_bytes(plane.admin.path.read_bytes())
    return plane


def _read_resources(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount):
            raise TestbedError(f"--fake-resource={text!r}: expected a name and an amount, a=1")
        yield name, amount


def _lasting() -> list[Testbed]:
    return [bed for bed in living() if bed.lasting]


def _kubeconfig(bed: Testbed) -> Path:
    return bed.folder / _KUBECONFIG


def _say(line: str) -> None:
    click.echo(line, err=True)
