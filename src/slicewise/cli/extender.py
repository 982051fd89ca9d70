"""`slicewise extender`: what kube-scheduler talks to, under its own flags and the originals'."""

import os
from functools import partial
from typing import Any, Final

import click
import uvloop

from slicewise import __version__
from slicewise.cli.goflags import go_switch, klog_flags
from slicewise.cli.logs import configure_logs, read_level
from slicewise.cli.options import (
    FILE,
    Document,
    ServiceCommand,
    log_options,
    read_address,
    read_namespaced_name,
    read_tls,
    run_service,
)
from slicewise.extender.run import ExtenderSettings, run_extender
from slicewise.extender.tracing import VARIABLES
from slicewise.httpd import ServerSettings
from slicewise.model import SlicewiseError
from slicewise.placement import read_policy
from slicewise.state.live import StateSettings

DEFAULT_ADDRESS: Final = "127.0.0.1:3456"
# What gpu-admission's own file may say beside its quota; none of it changes anything here.
_ADMISSION_KEYS: Final = ("GPUModelLabel", "GPUPoolLabel", "SkipBindTime")
_MODES: Final = ("gpushare", "pgpu", "qgpu")


def translate_admission(document: Document) -> Document:
    """A file of ours as it is, and gpu-admission's JSON in our words."""
    ours = {key: value for key, value in document.items() if key not in _ADMISSION_KEYS}
    namespace = ours.pop("QuotaConfigMapNamespace", None)
    name = ours.pop("QuotaConfigMapName", None)
    if namespace or name:
        ours["quota-configmap"] = f"{namespace or 'kube-system'}/{name or 'gpuquota'}"
    return ours


def is_admissions(key: str) -> bool:
    """Whether gpu-admission could have such a key: ours have no capitals."""
    return key != key.lower()


@click.command(
    cls=ServiceCommand, service="extender", translate=translate_admission, skips=is_admissions
)
@click.option("--address", help=f"host:port to listen on [default: {DEFAULT_ADDRESS}; "
              "env PORT sets the port alone].")  # fmt: skip
@click.option("--kubeconfig", "--kubeconf", type=FILE, help="Kubeconfig of the API server "
              "[default: KUBECONFIG, the pod's own, ~/.kube/config].")  # fmt: skip
@click.option("--master", help="URL of the API server, in place of the kubeconfig's.")
@click.option("--policy", help="Placement policy of pods that name none, like binpack, spread, "
              "random or fgd [default: default].")  # fmt: skip
@click.option("--priority", help="elastic-gpu's flag for the policy: binpack, spread or random.")
@click.option("--mode", help="elastic-gpu's list of modes; all are served whatever it says.")
@click.option("--commit-in-filter", is_flag=True,
              help="Let /scheduler/filter choose the node and write the allocation on the pod, "
              "for schedulers that are configured without a bind verb.")  # fmt: skip
@click.option("--quota-configmap", help="namespace/name of the ConfigMap with the GPU quota of "
              "namespaces; '' for no quota [default: kube-system/gpuquota].")  # fmt: skip
@click.option("--leader-elect/--no-leader-elect", help="Answer schedulers only while holding a "
              "Lease, so that one of several replicas decides.")  # fmt: skip
@click.option("--lease", default="kube-system/slicewise-extender", show_default=True,
              help="namespace/name of the Lease of --leader-elect.")  # fmt: skip
@click.option("--tls-cert", type=FILE, help="PEM certificate chain; read again when it changes.")
@click.option("--tls-key", type=FILE, help="PEM private key of --tls-cert.")
@click.option("--tls-client-ca", type=FILE, help="PEM certificate authorities; clients without a "
              "certificate from them are refused.")  # fmt: skip
@click.option("--health-address", help="host:port of a second listener, without TLS, for "
              "/healthz, /livez and /readyz alone.")  # fmt: skip
@click.option("--max-body-mib", default=128, show_default=True,
              help="Largest request body in MiB; a larger one is refused with 413.")  # fmt: skip
@click.option("--request-seconds", default=30.0, show_default=True,
              help="Longest time for reading a request, and for answering it.")  # fmt: skip
@click.option("--otlp-endpoint", help="Send traces to this OpenTelemetry collector, like "
              "http://127.0.0.1:4318 [env OTEL_EXPORTER_OTLP_ENDPOINT].")  # fmt: skip
@log_options
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
    lease = read_namespaced_name("--lease", flags["lease"]) if flags["leader_elect"] else None
    return ExtenderSettings(
        kubeconfig=flags["kubeconfig"],
        master=flags["master"],
        listen=ServerSettings(
            host=host,
            port=port,
            tls=read_tls(flags["tls_cert"], flags["tls_key"], flags["tls_client_ca"]),
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
    return read_namespaced_name("--quota-configmap", text) if text else None
