"""The `slicewise` command: one file per verb, each loaded only when it is called.

A node agent must not carry the simulator's arrays in its memory.
"""

from importlib import import_module
from typing import Final

import click

from slicewise import __version__

_VERBS: Final = {
    "compare": "slicewise.cli.compare:compare",
    "demo": "slicewise.cli.demo:demo",
    "extender": "slicewise.cli.extender:extender",
    "metrics-api": "slicewise.cli.metrics_api:metrics_api",
    "playground": "slicewise.cli.playground:playground",
    "scheduler-config": "slicewise.cli.scheduler_config:scheduler_config",
    "simulate": "slicewise.cli.simulate:simulate",
    "why": "slicewise.cli.why:why",
}


class Verbs(click.Group):
    """Commands by name, each from its own file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the alphabet."""
        return sorted({*_VERBS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded now; None when there is none."""
        if cmd_name not in _VERBS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _VERBS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slicewise")
def main() -> None:
    """Share NVIDIA GPUs between Kubernetes pods."""
