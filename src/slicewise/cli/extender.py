"""`slicewise extender`: what kube-scheduler talks to, under its own flags and the originals'."""

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from slicewise import __version__
from slicewise.cli.addresses import read_address
from slicewise.cli.goflags import go_switch, klog_flags
from slicewise.cli.logs import LEVELS, configure_logs, read_level
from slicewise.cli.options import Document, ServiceCommand
from slicewise.cli.service_runner import run_service
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.extender.tracing import VARIABLES
from slicewise.httpd import ServerSettings, Tls
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy
from slicewise.state.live import StateSettings

DEFAULT_ADDRESS: Final = "127.0.0.1:3456"
# What gpu-admission's own file may say beside its quota; none of it changes anything here.
_ADMISSION_KEYS: Final = ("GPUModelLabel", "GPUPoolLabel", "SkipBindTime")
_MODES: Final = ("gpushare", "pgpu", "qgpu")
_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


def translate_admission(document: Document) -> Document:
    """A file of ours as it is, and gpu-admission's JSON in our words."""
    ours = {key: value for key, value in document.items() if key not in _ADMISSION_KEYS}
    namespace = ours.pop("QuotaConfigMapNamespace", None)
    name = ours.pop("QuotaConfigMapName", None)
    if namespace or name:
        ours["quota-configmap"] = f"{namespace or 'kube-system'}/{name or 'gpuquota'}"
    return ours


@click.command(cls=ServiceCommand, service="extender", translate=translate_admission)
@click.option("--address", help=f"host:port to listen on [default: {DEFAULT_ADDRESS}; env PORT].")
@click.option("--kubeconfig", "--kubeconf", type=_FILE, help="Kubeconfig of the API server.")
@click.option("--master", help="Address of the API server, in place of the kubeconfig's.")
@click.option("--policy", help="How nodes and GPUs are chosen [default: default].")
@click.option("--priority", help="elastic-gpu's word for the policy: binpack, spread or random.")
@click.option("--mode", help="elastic-gpu's list of modes; all are served whatever it says.")
@click.option("--commit-in-filter", is_flag=True, help="Let /scheduler/filter write the decision.")
@click.option("--quota-configmap", help="namespace/name of the quota; '' for none.")
@click.option("--leader-elect/--no-leader-elect", help="Decide only while holding a lease.")
@click.option("--lease", default="kube-system/slicewise-extender", show_default=True)
@click.option("--tls-cert", type=_FILE, help="PEM certificate chain; read again when it changes.")
@click.option("--tls-key", type=_FILE, help="PEM key of that certificate.")
@click.option("--tls-client-ca", type=_FILE, help="PEM authorities that clients must be from.")
@click.option("--health-address", help="host:port of a plain listener for probes alone.")
@click.option("--max-body-mib", default=128, show_default=True, help="Largest request body.")
@click.option("--request-seconds", default=30.0, show_default=True, help="Longest answer.")
@click.option("--otlp-endpoint", help="OpenTelemetry collector, like http://127.0.0.1:4318.")
@click.option("--log-level", type=click.Choice(sorted(LEVELS)), help="[env LOG_LEVEL]")
@click.option("-v", "--v", "verbosity", type=int, default=0, help="klog's level; 4 logs more.")
@click.option("--pprofAddress", "--pprofaddress", expose_value=False, hidden=True)
@go_switch("--nodeCacheCapable", expose_value=False, hidden=True)
@go_switch("--enableComputeCapability", expose_value=False, hidden=True)
@go_switch("--incluster-mode", expose_value=False, hidden=True)
@klog_flags
@click.version_option(__version__, prog_name="slicewise")
def extender(**flags: Any) -> None:
    """Serve kube-scheduler: filter, prioritize, preempt and bind pods that ask for GPUs."""
    configure_logs(read_level(flags))
    run_service(partial(run_extender, read_settings(flags)), run=uvloop.run)


def read_settings(flags: dict[str, Any]) -> ExtenderSettings:
    """The settings that flags, environment and gpu-admission's file amount to."""
    host, port = read_address(flags["address"], DEFAULT_ADDRESS, os.environ.get("PORT"))
    lease = _read_pair("--lease", flags["lease"]) if flags["leader_elect"] else None
    return ExtenderSettings(
        kubeconfig=flags["kubeconfig"],
        master=flags["master"],
        listen=ServerSettings(
            host=host,
            port=port,
            tls=_read_tls(flags),
            max_body_bytes=flags["max_body_mib"] << 20,
            request_seconds=flags["request_seconds"],
        ),
        health=_read_health(flags["health_address"]),
        state=StateSettings(policy=_read_policy(flags), quota=_read_quota(flags)),
        commit_in_filter=flags["commit_in_filter"],
        lease=lease,
        otlp=_read_otlp(flags["otlp_endpoint"]),
    )


def _read_health(text: str | None) -> ServerSettings | None:
    if text is None:
        return None
    host, port = read_address(text, DEFAULT_ADDRESS, flag="--health-address")
    return ServerSettings(host=host, port=port, max_body_bytes=1 << 10, request_seconds=5.0)


def _read_otlp(flag: str | None) -> str | None:
    """Where to trace to: the flag, or empty where the standard's own variables tell."""
    if flag:
        return flag
    return "" if any(os.environ.get(name) for name in VARIABLES) else None


def _read_policy(flags: dict[str, Any]) -> str:
    mode = flags["mode"]
    for word in mode.split(",") if mode else ():
        if word not in _MODES:
            raise click.BadParameter(f"{word!r}: expected {', '.join(_MODES)}", param_hint="--mode")
    priority = flags["priority"]
    if priority not in (None, "binpack", "spread", "random"):
        raise click.BadParameter(
            f"{priority!r}: expected binpack, spread or random", param_hint="--priority"
        )
    policy: str = flags["policy"] or priority or "default"
    try:
        read_policy(policy)
    except SlicewiseError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    return policy


def _read_quota(flags: dict[str, Any]) -> tuple[str, str] | None:
    text = flags["quota_configmap"]
    if text is None:
        return StateSettings().quota
    return _read_pair("--quota-configmap", text) if text else None


def _read_pair(flag: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name):
        raise click.BadParameter(f"{text!r}: expected namespace/name", param_hint=flag)
    return namespace, name


def _read_tls(flags: dict[str, Any]) -> Tls | None:
    certificate, key, authority = flags["tls_cert"], flags["tls_key"], flags["tls_client_ca"]
    if certificate is None and key is None:
        if authority is not None:
            raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key beside it")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key are only of use together")
    return Tls(certificate, key, authority, require_client=authority is not None)
