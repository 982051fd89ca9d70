"""The `slicewise` command and the kubectl plugin: one file per command, loaded when it is called.

A node agent must not carry the simulator's arrays in its memory.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from slicewise import __version__
from slicewise.cli.render.logs import configure_plain_logs
from slicewise.cli.render.terminal import escaped_errors

CLUSTER_COMMANDS: Final[Mapping[str, str]] = {
    "audit": "slicewise.cli.audit:audit",
    "cordon": "slicewise.cli.cordon:cordon",
    "defrag": "slicewise.cli.defrag:defrag",
    "doctor": "slicewise.cli.doctor:doctor",
    "top": "slicewise.cli.top:top",
    "trust": "slicewise.cli.trust:trust",
    "uncordon": "slicewise.cli.cordon:uncordon",
    "withdraw": "slicewise.cli.withdraw:withdraw",
    "what-if": "slicewise.cli.what_if:what_if",
    "why": "slicewise.cli.why:why",
}
"""What people ask a cluster: `kubectl slicewise`, and part of `slicewise` itself."""
PLAYGROUND_COMMANDS: Final[Mapping[str, str]] = {
    "demo": "slicewise-playground",
    "playground": "slicewise-playground",
}
"""Commands of another distribution, and the name to install it by."""
_COMMANDS: Final = {
    **CLUSTER_COMMANDS,
    "admission-policies": "slicewise.cli.admission:admission_policies",
    "admission-webhook": "slicewise.cli.admission:admission_webhook",
    "agent": "slicewise.cli.agent:agent",
    "claim": "slicewise.cli.claim:claim",
    "compare": "slicewise.cli.compare:compare",
    "dashboard": "slicewise.cli.dashboard:dashboard",
    "extender": "slicewise.cli.extender:extender",
    "metrics-api": "slicewise.cli.metrics_api:metrics_api",
    "inspect-gpushare": "slicewise.cli.inspect_gpushare:main",
    "scheduler-config": "slicewise.cli.scheduler_config:scheduler_config",
    "simulate": "slicewise.cli.simulate:simulate",
}
_GROUP: Final = "slicewise.commands"


class LazyGroup(click.Group):
    """Commands by name, each from its own file or from a distribution that brings it."""

    def __init__(
        self,
        *words: Any,
        commands: Mapping[str, str],
        extras: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(*words, **facts)
        self._commands = commands
        self._extras = extras or {}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with plain logs unless it is a service and asks for its own."""
        configure_plain_logs()
        with escaped_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted by name."""
        installed = [name for name in self._extras if _find_installed(name)]
        return sorted({*self._commands, *installed, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded now; None when there is none."""
        if cmd_name in self._extras:
            found = _find_installed(cmd_name)
            if found is None:
                raise click.ClickException(
                    f"{cmd_name} is not installed: pip install {self._extras[cmd_name]}"
                )
            extra: click.Command = found.load()
            return extra
        if cmd_name not in self._commands:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._commands[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def _find_installed(name: str) -> EntryPoint | None:
    """The command that an installed distribution brings under this name."""
    return next(iter(entry_points(group=_GROUP, name=name)), None)


_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


@click.group(
    cls=LazyGroup, commands=_COMMANDS, extras=PLAYGROUND_COMMANDS, context_settings=_SETTINGS
)
@click.version_option(__version__, prog_name="slicewise")
def main() -> None:
    """Share NVIDIA GPUs between Kubernetes pods."""


@click.group(cls=LazyGroup, commands=CLUSTER_COMMANDS, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="kubectl-slicewise")
def kubectl_plugin() -> None:
    """See who holds which GPU, and why a pod waits."""
