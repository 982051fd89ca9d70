"""`slicewise metrics-api`: nvidia-gpu-scheduler's server, under its own flags and ours."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from slicewise import __version__
from slicewise.cli.goflags import GoCommand, klog_flags
from slicewise.cli.logs import configure_logs
from slicewise.cli.options import read_service_name
from slicewise.httpd import ServerSettings, Tls
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.run import MetricsApiOptions, run_metrics_api
from slicewise.metricsapi.server import MetricsApiSettings
from slicewise.model import SlicewiseError

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
_CONFIG: Final = ".metrics-podresource.yaml"
# What the original's file and flags may say, with its defaults.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "bind-address": "0.0.0.0",
    "secure-port": 8080,
    "tls-auto": True,
    "tls-config.tls-ca-file": "",
    "tls-config.tls-cert-file": "",
    "tls-config.tls-private-key-file": "",
    "enable-scheduler": True,
    "scheduler.parallelism": 10,
}
F = TypeVar("F", bound=Callable[..., Any])
_MISSPELT: Final = {"tls-autos": "tls-auto"}


def _switch(*names: str, **facts: Any) -> Callable[[F], F]:
    """A flag that is true when it stands alone, or what `=false` says; absent is neither."""
    return click.option(*names, is_flag=False, flag_value="true", type=click.BOOL, **facts)


@click.command(cls=GoCommand)
@click.option("-c", "--config", type=_FILE, help=f"YAML file [default: ~/{_CONFIG} if present].")
@click.option("-b", "--bind-address", help="Address to listen on [default: 0.0.0.0].")
@click.option("-p", "--secure-port", type=int, help="Port to listen on [default: 8080].")
@_switch("--tls-auto", help="Make and renew certificates in a Secret [default: true].")
@click.option("--tls-config.tls-ca-file", "tls_ca", help="PEM authority, without --tls-auto.")
@click.option("--tls-config.tls-cert-file", "tls_cert", help="PEM certificate chain.")
@click.option("--tls-config.tls-private-key-file", "tls_key", help="PEM key.")
@_switch("--enable-scheduler", help="Serve the scheduler's verbs as well [default: true].")
@click.option("--scheduler.parallelism", "parallelism", type=int, help="Read, and of no effect.")
@click.option("--write-config-to", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--kubeconfig", type=_FILE, help="Kubeconfig of the API server.")
@click.option("--name", help="Name of the Service and of the Secret [env MetadataName].")
@click.option("--namespace", help="Namespace of both [env MetadataNamespace].")
@click.option("--policy", default="default", show_default=True, help="How nodes are chosen.")
@click.option("--silence-seconds", default=3.3, show_default=True, help="When a node is ill.")
@click.option("--overlap-seconds", default=30.0, show_default=True, help="Of two authorities.")
@_switch("--agents-need-node", default=False, help="Refuse tokens that name no node.")
@_switch("--admit-old-agents", default=False, help="Hear agents that show no credentials.")
@click.option("-v", "--v", "verbosity", type=int, default=0, help="klog's level; 4 logs more.")
@klog_flags
@click.version_option(__version__, prog_name="slicewise")
def metrics_api(**flags: Any) -> None:
    """Serve who holds which GPU through the API server, as nvidia-gpu-scheduler does."""
    configure_logs(logging.DEBUG if flags["verbosity"] >= 4 else logging.INFO)
    choices = read_choices(flags)
    if flags["write_config_to"] is not None:
        flags["write_config_to"].write_text(yaml.safe_dump(_nest(choices), sort_keys=False))
        return
    settings = read_settings(flags, choices)

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ask_to_stop() -> None:
            if stop.is_set():
                # Whoever asks twice does not want to wait.
                os._exit(1)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask_to_stop)
        await run_metrics_api(settings, stop)

    try:
        asyncio.run(serve())
    except (SlicewiseError, OSError) as error:
        raise click.ClickException(str(error)) from error


def read_choices(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the original's flags and file amount to: a flag wins over the file."""
    given = {
        "bind-address": flags["bind_address"],
        "secure-port": flags["secure_port"],
        "tls-auto": flags["tls_auto"],
        "tls-config.tls-ca-file": flags["tls_ca"],
        "tls-config.tls-cert-file": flags["tls_cert"],
        "tls-config.tls-private-key-file": flags["tls_key"],
        "enable-scheduler": flags["enable_scheduler"],
        "scheduler.parallelism": flags["parallelism"],
    }
    stated = {key: value for key, value in given.items() if value is not None}
    return {**_DEFAULTS, **_read_file(flags["config"]), **stated}


def read_settings(flags: Mapping[str, Any], choices: Mapping[str, Any]) -> MetricsApiOptions:
    """How the service runs."""
    name, namespace = read_service_name(os.environ)
    authority = choices["tls-config.tls-ca-file"]
    return MetricsApiOptions(
        kubeconfig=flags["kubeconfig"],
        policy=flags["policy"],
        scheduler=choices["enable-scheduler"],
        service=MetricsApiSettings(
            name=flags["name"] or name,
            namespace=flags["namespace"] or namespace,
            listen=ServerSettings(
                host=choices["bind-address"],
                port=choices["secure-port"],
                tls=_read_tls(choices),
                request_seconds=30.0,
                stop_seconds=30.0,
            ),
            authority=Path(authority) if authority and not choices["tls-auto"] else None,
            rules=AgentRules(
                need_node=flags["agents_need_node"], admit_unknown=flags["admit_old_agents"]
            ),
            silence_seconds=flags["silence_seconds"],
            overlap_seconds=flags["overlap_seconds"],
        ),
    )


def _read_tls(choices: Mapping[str, Any]) -> Tls | None:
    if choices["tls-auto"]:
        return None
    files = {}
    for key in ("tls-config.tls-cert-file", "tls-config.tls-private-key-file"):
        path = Path(choices[key]) if choices[key] else None
        if path is None or not path.is_file():
            hint = f"--{key}"
            raise click.BadParameter(f"{choices[key]!r}: expected a PEM file", param_hint=hint)
        files[key] = path
    return Tls(files["tls-config.tls-cert-file"], files["tls-config.tls-private-key-file"])


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        path = Path.home() / _CONFIG
        if not path.is_file():
            return {}
    try:
        document = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise click.BadParameter(str(error), param_hint="--config") from error
    if not isinstance(document, dict):
        raise click.BadParameter(f"{path}: expected a mapping", param_hint="--config")
    found = {}
    for key, value in _flatten(document).items():
        name = _MISSPELT.get(key, key)
        if name not in _DEFAULTS:
            continue
        wanted = type(_DEFAULTS[name])
        if not isinstance(value, wanted):
            raise click.BadParameter(
                f"{path}: {key}={value!r}: expected a {wanted.__name__}", param_hint="--config"
            )
        found[name] = value
    return found


def _flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            found |= _flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _nest(choices: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in choices.items():
        head, dot, tail = key.partition(".")
        if dot:
            document.setdefault(head, {})[tail] = value
        else:
            document[key] = value
    return document
