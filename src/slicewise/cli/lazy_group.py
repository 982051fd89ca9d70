"""The verbs of our commands, each loaded from its own file only when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

CLUSTER_COMMANDS: Final[Mapping[str, str]] = {
    "audit": "slicewise.cli.audit:audit",
    "cordon": "slicewise.cli.cordon:cordon",
    "doctor": "slicewise.cli.doctor:doctor",
    "top": "slicewise.cli.top:top",
    "uncordon": "slicewise.cli.cordon:uncordon",
    "what-if": "slicewise.cli.what_if:what_if",
    "why": "slicewise.cli.why:why",
}
"""What people ask a cluster: `kubectl slicewise`, and part of `slicewise` itself."""


class LazyGroup(click.Group):
    """Commands by name, each from its own file."""

    def __init__(self, *words: Any, verbs: Mapping[str, str], **facts: Any) -> None:
        super().__init__(*words, **facts)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the alphabet."""
        return sorted({*self._verbs, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded now; None when there is none."""
        if cmd_name not in self._verbs:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._verbs[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command
