"""Command lines written for Go programs: one dash, `=true`, underscores, and klog's flags."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import click

from slicewise import __version__
from slicewise.cli.render.terminal import echo, escaped_errors
from slicewise.dialects.original_flags import KLOG, IgnoredFlag

F = TypeVar("F", bound=Callable[..., Any])
_IGNORED: Final = "slicewise.ignored flags"
_DEFAULT: Final = click.core.ParameterSource.DEFAULT


class GoCommand(click.Command):
    """A command that also understands its flags the way Go programs write them."""

    def __init__(self, *args: Any, **facts: Any) -> None:
        facts.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **facts)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what its errors quote is escaped."""
        with escaped_errors():
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Respell every flag as ours before it is read, and name those without effect."""
        names = {
            name: max(option.opts, key=len)
            for option in self.params
            for name in (*option.opts, *option.secondary_opts)
        }
        switches = {
            name: max(option.opts, key=len)
            for option in self.params
            if isinstance(option, click.Option) and option.flag_value == "true"
            for name in option.opts
        }
        rest = super().parse_args(ctx, [_respell(arg, names, switches) for arg in args])
        ignored: dict[str, list[str]] = ctx.meta.get(_IGNORED, {})
        if ignored and not ctx.resilient_parsing:
            parts = (f"{', '.join(flags)} ({why})" for why, flags in ignored.items())
            echo(f"accepted without effect: {'; '.join(parts)}", err=True)
        return rest


def _respell(arg: str, names: Mapping[str, str], switches: Mapping[str, str]) -> str:
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
    if equals and not found.startswith("--"):
        # Of `-v=5`, click would take `=5` for the value.
        found = names[found]
    return f"{found}{equals}{value}"


def go_switch(*names: str, **facts: Any) -> Callable[[F], F]:
    """An option that is true when it stands alone, or what `=true` and `=false` say."""
    choices = {"default": False, "metavar": "[=true|false]", **facts}
    return click.option(*names, is_flag=False, flag_value="true", type=click.BOOL, **choices)


def ignored_flags(flags: Iterable[IgnoredFlag]) -> Callable[[F], F]:
    """Flags of an original that are taken and named in one warning, and change nothing."""

    def declare(command: F) -> F:
        for each in flags:
            facts: dict[str, Any] = {"flag_value": "true"} if each.switch else {}
            # Of several letter cases the original took its own alone; we take the small one too.
            names = dict.fromkeys((each.name, each.name.lower()))
            command = click.option(
                *names,
                is_flag=False,
                expose_value=False,
                hidden=True,
                callback=note_ignored(each),
                **facts,
            )(command)
        return command

    return declare


def note_ignored(flag: IgnoredFlag) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback of an option that names it as one without effect, if it was given."""

    def note(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
        if value is not None and ctx.get_parameter_source(str(option.name)) != _DEFAULT:
            ctx.meta.setdefault(_IGNORED, {}).setdefault(flag.why, []).append(flag.name)
        return value

    return note


def klog_flags(command: F) -> F:
    """Every flag of klog, so that no old command line fails."""
    return ignored_flags(KLOG)(command)


def version_flag(program: str = "slicewise") -> Callable[[F], F]:
    """`--version` alone or with a value, as Go programs take it."""

    def show(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is None or value.lower() in ("false", "f", "0") or ctx.resilient_parsing:
            return
        echo(f"{program}, version {__version__}")
        ctx.exit()

    return click.option(
        "--version",
        is_flag=False,
        flag_value="true",
        is_eager=True,
        expose_value=False,
        callback=show,
        metavar="[=true]",
        help="Show the version and exit.",
    )
