"""Command lines written for Go programs: one dash, `=true`, underscores, and klog's flags."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# What klog takes; we log in one way only, so that these are read and change nothing but -v.
_KLOG_SWITCHES: Final = (
    "logtostderr",
    "alsologtostderr",
    "add-dir-header",
    "one-output",
    "skip-headers",
    "skip-log-headers",
)
_KLOG_WORDS: Final = (
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "log-flush-frequency",
    "stderrthreshold",
    "vmodule",
)


class GoCommand(click.Command):
    """A command that also understands its flags the way Go programs write them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Respell every flag as ours before it is read."""
        names = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}
        switches = {
            name: max(option.opts, key=len)
            for option in self.params
            if isinstance(option, click.Option) and option.flag_value == "true"
            for name in option.opts
        }
        return super().parse_args(ctx, [_respell(arg, names, switches) for arg in args])


def _respell(arg: str, names: set[str], switches: Mapping[str, str]) -> str:
    if not arg.startswith("-") or arg in ("-", "--"):
        return arg
    flag, equals, value = arg.partition("=")
    long = "--" + flag.lstrip("-")
    spellings = (flag, long, long.replace("_", "-"))
    found = next((each for each in spellings if each in names), None)
    if found is None:
        return arg
    if found in switches:
        # Alone it would take the next word for its value.
        return f"{switches[found]}={value if equals else 'true'}"
    return f"{found}{equals}{value}"


def go_switch(*names: str, **facts: Any) -> Callable[[F], F]:
    """An option that is true when it stands alone, or what `=true` and `=false` say."""
    choices = {"default": False, **facts}
    return click.option(*names, is_flag=False, flag_value="true", type=click.BOOL, **choices)


def klog_flags(command: F) -> F:
    """Every flag of klog, so that no old command line fails."""
    for name in _KLOG_WORDS:
        command = click.option(f"--{name}", expose_value=False, hidden=True)(command)
    for name in _KLOG_SWITCHES:
        command = go_switch(f"--{name}", expose_value=False, hidden=True)(command)
    return command
