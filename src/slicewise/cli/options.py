"""Services as commands: a flag, then its environment variable, then a file, then the default.

Every flag of a service is also `SLICEWISE_<SERVICE>_<FLAG>` in the environment and a key of the
YAML file that `--config` names. Variables that the original systems' users know come after ours.
Flags that several services have are read here, so that they mean the same everywhere.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from slicewise.cli.goflags import GoCommand
from slicewise.cli.logs import LEVELS
from slicewise.httpd import Tls
from slicewise.model import SlicewiseError

F = TypeVar("F", bound=Callable[..., Any])
Document = Mapping[str, Any]
FILE: Final = click.Path(dir_okay=False, exists=True, path_type=Path)
_NAME: Final = "nvidia-gpu-scheduler"
_NAMESPACE: Final = "kube-system"


class ServiceCommand(GoCommand):
    """The command of one service, whose flags the environment and a file can set as well."""

    def __init__(
        self,
        *args: Any,
        service: str,
        config_names: tuple[str, ...] = ("--config",),
        config_default: Callable[[], Path | None] = lambda: None,
        translate: Callable[[Document], Document] = lambda document: document,
        skips: Callable[[str], bool] = lambda _: False,
        **facts: Any,
    ) -> None:
        """Read the file's document through `translate`, which knows an original's own keys.

        `skips` is for files that an original's users have already: a key of theirs that we do
        not know is named in a warning and passed over.
        """
        super().__init__(*args, **facts)
        self._skips = skips
        self._config_default = config_default
        self._translate = translate
        prefix = f"SLICEWISE_{service.upper().replace('-', '_')}_"
        for option in self.params:
            # --version is no setting, and a variable of that name holds somebody's number.
            if isinstance(option, click.Option) and not option.is_eager:
                _name_variables(option, prefix)
        config = click.Option(
            config_names,
            type=FILE,
            is_eager=True,
            expose_value=False,
            callback=self._load,
            envvar=_spell_variables(config_names, prefix),
            help="YAML file of these flags, without their dashes; flags and environment win.",
        )
        self.params.insert(0, config)
        flag = next(name for name in config_names if name.startswith("--"))
        self.epilog = f"Every flag can also be set as {prefix}<FLAG>, or in the file of {flag}."

    def _load(self, ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
        """Take the file's values as defaults, each checked as its flag is."""
        path = path or self._config_default()
        if path is None:
            return
        options = {
            name.lstrip("-"): each
            for each in self.params
            for name in each.opts
            if name.startswith("--") and not each.is_eager
        }
        found: dict[str, Any] = {}
        for key, value in flatten(self._translate(_read_document(path))).items():
            if key not in options and self._skips(key):
                click.echo(f"{path}: {key!r} is no flag of this command: ignored", err=True)
                continue
            if key not in options:
                raise click.BadParameter(f"{path}: {key!r}: expected a flag of this command")
            if value is not None:
                _check(ctx, options[key], f"{path}: {key}={value!r}", value)
                found[str(options[key].name)] = value
        ctx.default_map = found


def flatten(document: Document, prefix: str = "") -> dict[str, Any]:
    """Nested keys as one, joined by dots, as flags like `--tls-config.tls-ca-file` have them."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _check(ctx: click.Context, option: click.Parameter, where: str, value: Any) -> None:
    """Refuse a value that the flag would refuse, and say where it stands."""
    if isinstance(value, list) and not getattr(option, "multiple", False):
        raise click.BadParameter(f"{where}: expected one value")
    try:
        option.type_cast_value(ctx, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{where}: {error.message}") from error


def _name_variables(option: click.Option, prefix: str) -> None:
    """Ours before those the option has already."""
    known = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    option.envvar = [*_spell_variables(option.opts, prefix), *known]


def _spell_variables(names: Sequence[str], prefix: str) -> list[str]:
    flags = [name for name in names if name.startswith("--")]
    return [prefix + flag.lstrip("-").upper().replace("-", "_").replace(".", "_") for flag in flags]


def _read_document(path: Path) -> Document:
    try:
        document = _parse(path.read_text()) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise click.BadParameter(f"{path}: expected flags and their values")
    return document


def _parse(text: str) -> Any:
    try:
        # Go programs indent JSON with tabs, which YAML refuses.
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def log_options(command: F) -> F:
    """The flags that say how much is logged, ours and klog's; see `logs.read_level`."""
    command = click.option(
        "-v", "--v", "verbosity", type=int, default=0, help="klog's level; from 4 on, log more."
    )(command)
    return click.option(
        "--log-level",
        type=click.Choice(sorted(LEVELS)),
        help="Log from this level up [default: info; env LOG_LEVEL].",
    )(command)


def read_address(
    text: str | None, default: str, port: str | None = None, *, flag: str = "--address"
) -> tuple[str, int]:
    """Host and port; without an address the originals' PORT counts, on the default's host."""
    if text is None:
        host, _, fallback = default.rpartition(":")
        return host, int(port if port and port.isdecimal() else fallback)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal() or int(number) > 65535:
        raise click.BadParameter(f"{text!r}: expected host:port", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", int(number)


def read_service_name(environment: Mapping[str, str]) -> tuple[str, str]:
    """Name and namespace of the Service: the pod's name without its last part."""
    pod = environment.get("MetadataName", "")
    name = pod.rpartition("-")[0] or _NAME
    return name, environment.get("MetadataNamespace") or _NAMESPACE


def read_namespaced_name(flag: str, text: str) -> tuple[str, str]:
    """Namespace and name out of `namespace/name`."""
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name):
        raise click.BadParameter(f"{text!r}: expected namespace/name", param_hint=flag)
    return namespace, name


def read_tls(
    certificate: Path | None, key: Path | None, client_ca: Path | None = None
) -> Tls | None:
    """The files to serve HTTPS with; None without --tls-cert and --tls-key."""
    if certificate is None and key is None:
        if client_ca is not None:
            raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key beside it")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key are only of use together")
    return Tls(certificate, key, client_ca, require_client=client_ca is not None)


def run_service(
    serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    *,
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    impatient: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; an `impatient` service leaves at once on the second one."""

    async def live() -> None:
        stop = asyncio.Event()

        def ask_to_stop() -> None:
            if impatient and stop.is_set():
                os._exit(1)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ask_to_stop)
        await serve(stop)

    try:
        run(live())
    except (SlicewiseError, OSError) as error:
        raise click.ClickException(str(error)) from error
