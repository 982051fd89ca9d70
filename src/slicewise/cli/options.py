"""Services as commands: a flag, then its environment variable, then a file, then the default.

Every flag of a service is also `SLICEWISE_<SERVICE>_<FLAG>` in the environment and a key of the
YAML file that `--config` names. Variables that the original systems' users know come after ours.
Flags that several services have are read here, so that they mean the same everywhere.
"""

import asyncio
import json
import os
import resource
import shlex
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from slicewise.cli.goflags import GoCommand
from slicewise.cli.render.logs import LEVELS
from slicewise.cli.render.terminal import echo
from slicewise.dialects import QuotaLabels
from slicewise.httpd import ConnectionLimits, ServerSettings, Tls, is_loopback
from slicewise.model import SlicewiseError
from slicewise.state.trust import TRUST_CONFIGMAP

F = TypeVar("F", bound=Callable[..., Any])
Document = Mapping[str, Any]
FILE: Final = click.Path(dir_okay=False, exists=True, path_type=Path)
_NAME: Final = "nvidia-gpu-scheduler"
_NAMESPACE: Final = "kube-system"
_DESCRIPTORS: Final = 1 << 17


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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags, and those that gpu-admission's and gpu-manager's images append."""
        try:
            appended = shlex.split(os.environ.get("EXTRA_FLAGS", ""))
        except ValueError as error:
            raise click.UsageError(f"EXTRA_FLAGS={os.environ['EXTRA_FLAGS']!r}: {error}") from error
        return super().parse_args(ctx, [*args, *appended])

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
                echo(f"{path}: {key!r} is no flag of this command: ignored", err=True)
                continue
            if key not in options:
                raise click.BadParameter(f"{path}: {key!r}: expected a flag of this command")
            if value is not None:
                _check(ctx, options[key], f"{path}: {key}={value!r}", value)
                found[str(options[key].name)] = value
        ctx.default_map = found


def health_option(command: F) -> F:
    """A second listener, which probes and Prometheus reach where the first is on loopback."""
    text = (
        "host:port of a second listener, without TLS, for /healthz, /livez, /readyz and, where the "
        "service has them, /leadz, /version and /metrics alone."
    )
    return click.option("--health-address", help=text)(command)


def read_health(text: str | None, default: str) -> ServerSettings | None:
    """Where that listener is, if one is wanted; its limits are small, as its answers are."""
    if text is None:
        return None
    host, port = read_address(text, default, flag="--health-address")
    limits = ConnectionLimits(connections=256, connections_per_peer=64)
    # Probes name the address they ask, and get nothing but their answer.
    return ServerSettings(
        host, port, max_body_bytes=1 << 10, request_seconds=5.0, limits=limits, any_host=True
    )


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


def find_home_file(name: str) -> Path | None:
    """A file in the home folder, if it is there, as some originals look for theirs."""
    path = Path.home() / name
    return path if path.is_file() else None


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


def quota_label_options(*, environment: str = "") -> Callable[[F], F]:
    """The flags that say by which labels of nodes the quota names models and pools.

    Commands that are no service read variables that begin with `environment`.
    """

    def declare(command: F) -> F:
        flags = (
            ("model", "Label of nodes whose value names their GPU model in the quota, beside the "
             "models that the nodes themselves report."),
            ("pool", "Label of nodes that names their pool in the quota [default: "
             "slicewise.io/gpu-pool, gaia.tencent.com/gpu-pool, tkestack.io/gpu-pool]."),
        )  # fmt: skip
        for name, told in reversed(flags):
            variable = f"{environment}{name.upper()}_LABEL" if environment else None
            command = click.option(f"--{name}-label", envvar=variable, help=told)(command)
        return command

    return declare


def read_quota_labels(flags: Mapping[str, Any]) -> QuotaLabels:
    return QuotaLabels(flags["model_label"] or None, flags["pool_label"] or None)


def trust_option(command: F) -> F:
    """The flag that says which ConfigMap tells whom to believe, as `trust_configmap`."""
    return click.option(
        "--trust-configmap",
        default="/".join(TRUST_CONFIGMAP),
        show_default=True,
        help="namespace/name of the ConfigMap with public keys, the take-over and the nodes of "
        "original agents.",
    )(command)


def read_port(environment: Mapping[str, str]) -> int | None:
    """The port of the originals' variable PORT; none where it is no number, as for them."""
    text = environment.get("PORT", "")
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        echo(f"PORT={text!r}: expected a port number; not used", err=True)
        return None
    return int(text)


def warn_open(flag: str, port: int) -> None:
    """Say once that an original's setting has opened an address to everybody."""
    echo(
        f"{flag}: listening on all interfaces without TLS, as the original does: whoever reaches "
        f"port {port} is obeyed; --address=127.0.0.1:{port} or --tls-cert, --tls-key and "
        "--tls-client-ca close it",
        err=True,
    )


def read_address(text: str | None, default: str, *, flag: str = "--address") -> tuple[str, int]:
    """Host and port as they are written, or the default's."""
    text = default if text is None else text
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


def tls_options(command: F) -> F:
    """The flags of a service that knows its clients by their certificates."""
    for name, kind, text in (
        ("--tls-client-name", str, "Common name of a client certificate that is served; can be "
         "repeated [default: every certificate from --tls-client-ca]."),
        ("--tls-client-ca", FILE, "PEM certificate authorities; clients without a certificate "
         "from them are refused."),
        ("--tls-key", FILE, "PEM private key of --tls-cert."),
        ("--tls-cert", FILE, "PEM certificate chain; read again when it changes."),
    ):  # fmt: skip
        several = name == "--tls-client-name"
        command = click.option(name, type=kind, multiple=several, help=text)(command)
    return command


def exposure_options(command: F) -> F:
    """The flags that say who may connect, and how often."""
    command = click.option(
        "--max-connections",
        type=click.IntRange(2),
        default=ConnectionLimits().connections,
        show_default=True,
        help="Connections at a time; one address has at most half of them.",
    )(command)
    return click.option(
        "--insecure",
        is_flag=True,
        help="Listen on an address that is not loopback without TLS, for whoever reaches it.",
    )(command)


def read_limits(flags: Mapping[str, Any], **more: int) -> ConnectionLimits:
    most = flags["max_connections"]
    return ConnectionLimits(connections=most, connections_per_peer=most // 2, **more)


def check_exposure(
    host: str, tls: Tls | None, flags: Mapping[str, Any], *, mutual: bool = True
) -> None:
    """Refuse to obey whoever reaches an address, unless that is what was asked for."""
    secure = tls is not None and (not mutual or tls.client_ca is not None)
    if secure or flags["insecure"] or is_loopback(host):
        return
    files = "--tls-cert, --tls-key and --tls-client-ca" if mutual else "--tls-cert and --tls-key"
    why = "whoever reaches it is obeyed" if mutual else "tokens would come in the clear"
    raise click.UsageError(
        f"--address={flags['address']}: {host} is not loopback, and {why}; "
        f"pass {files}, or --insecure to serve it as it is"
    )


def read_tls(flags: Mapping[str, Any]) -> Tls | None:
    """The files to serve HTTPS with; None without --tls-cert and --tls-key."""
    certificate, key = flags["tls_cert"], flags["tls_key"]
    client_ca, names = flags.get("tls_client_ca"), frozenset(flags.get("tls_client_name", ()))
    if names and client_ca is None:
        raise click.UsageError("--tls-client-name needs --tls-client-ca beside it")
    if certificate is None and key is None:
        if client_ca is not None:
            raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key beside it")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key are only of use together")
    required = client_ca is not None
    return Tls(certificate, key, client_ca, require_client=required, client_names=names)


def run_service(
    serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    *,
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    impatient: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; an `impatient` service leaves at once on the second one."""
    _raise_descriptor_limit()

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


def _raise_descriptor_limit() -> None:
    """Allow as many connections as may be; the lower limit is for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
