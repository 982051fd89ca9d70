"""The slicewise-testbed command: builds the binaries, starts a cluster, lists and removes it."""

import click

from slicewise_testbed.build import ensure_binaries
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.packages import ensure_packages


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
@click.option("--packages/--no-packages", default=True, help="Install missing Debian packages.")
def build(packages: bool) -> None:
    """Build the Kubernetes binaries once, and install what real nodes need besides."""
    folder = ensure_binaries(_say)
    if packages:
        ensure_packages(_say)
    click.echo(folder)


def _say(line: str) -> None:
    click.echo(line, err=True)
