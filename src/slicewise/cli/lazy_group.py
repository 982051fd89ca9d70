"""The verbs of our commands, each loaded from its own file only when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from slicewise.cli.logs import configure_plain_logs

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
PLAYGROUND_COMMANDS: Final[Mapping[str, str]] = {
    "demo": "slicewise-playground",
    "playground": "slicewise-playground",
}
"""Commands of another distribution, and the name to install it by."""
_GROUP: Final = "slicewise.commands"


class LazyGroup(click.Group):
    """Commands by name, each from its own file or from a distribution that brings it."""

    def __init__(
        self,
        *words: Any,
        verbs: Mapping[str, str],
        extras: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(*words, **facts)
        self._verbs = verbs
        self._extras = extras or {}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb, with plain logs unless it is a service and asks for its own."""
        configure_plain_logs()
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the alphabet."""
        installed = [name for name in self._extras if _find_installed(name)]
        return sorted({*self._verbs, *installed, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded now; None when there is none."""
        if cmd_name in self._extras:
            found = _find_installed(cmd_name)
            if found is None:
                raise click.ClickException(
                    f"{cmd_name} is not installed: pip install {self._extras[cmd_name]}"
                )
            extra: click.Command = found.load()
            return extra
        if cmd_name not in self._verbs:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._verbs[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def _find_installed(name: str) -> EntryPoint | None:
    """The command that an installed distribution brings under this name."""
    return next(iter(entry_points(group=_GROUP, name=name)), None)
