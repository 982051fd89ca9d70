"""`kubectl slicewise`: the verbs that people ask a cluster with, as a kubectl plugin."""

import click

from slicewise import __version__
from slicewise.cli.lazy_group import CLUSTER_COMMANDS, LazyGroup


@click.group(
    cls=LazyGroup, verbs=CLUSTER_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="kubectl-slicewise")
def main() -> None:
    """See who holds which GPU, and why a pod waits."""
