"""`slicewise metrics-api`: nvidia-gpu-scheduler's server, under its own flags and ours."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import yaml

from slicewise.cli.goflags import go_switch, klog_flags, note_ignored, version_flag
from slicewise.cli.options import (
    FILE,
    Document,
    ServiceCommand,
    find_home_file,
    log_options,
    quota_label_options,
    read_limits,
    read_namespaced_name,
    read_quota_labels,
    read_service_name,
    run_service,
)
from slicewise.cli.render.logs import configure_logs, read_level
from slicewise.dialects import original_flags
from slicewise.extender.run import serve_beside
from slicewise.httpd import ServerSettings, Tls
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.registry import SILENCE_SECONDS
from slicewise.metricsapi.run import run_metrics_api
from slicewise.metricsapi.server import MetricsApiSettings

_CONFIG: Final = ".metrics-podresource.yaml"
# What the original's file may say, and what it is called among the flags.
_WRITTEN: Final = {
    "bind-address": "bind_address",
    "secure-port": "secure_port",
    "tls-auto": "tls_auto",
    "tls-config.tls-ca-file": "tls_ca",
    "tls-config.tls-cert-file": "tls_cert",
    "tls-config.tls-private-key-file": "tls_key",
    "enable-scheduler": "enable_scheduler",
    "scheduler.parallelism": "parallelism",
}
# As a sample file of the original's own spells it.
_MISSPELT: Final = {"tls-autos": "tls-auto"}


def translate_original(document: Document) -> Document:
    """The original's file in our words, which are nearly its own."""
    return {_MISSPELT.get(key, key): value for key, value in document.items()}


@click.command(
    cls=ServiceCommand,
    service="metrics-api",
    short_help="Serve who holds which GPU as an API.",
    config_names=("-c", "--config"),
    config_default=lambda: find_home_file(_CONFIG),
    translate=translate_original,
    skips=lambda _: True,
)
@click.option(
    "-b", "--bind-address", default="0.0.0.0", show_default=True, help="Address to listen on."
)
@click.option("-p", "--secure-port", default=8080, show_default=True, help="Port to listen on.")
@go_switch(
    "--tls-auto",
    default=True,
    show_default=True,
    help="Make certificates, renew them and keep them in a Secret.",
)
@click.option(
    "--tls-config.tls-ca-file",
    "tls_ca",
    default="",
    help="PEM certificate authority of --tls-config.tls-cert-file, with --tls-auto=false.",
)
@click.option(
    "--tls-config.tls-cert-file",
    "tls_cert",
    default="",
    help="PEM certificate chain to serve with, with --tls-auto=false.",
)
@click.option(
    "--tls-config.tls-private-key-file",
    "tls_key",
    default="",
    help="PEM private key of --tls-config.tls-cert-file.",
)
@go_switch(
    "--enable-scheduler",
    default=True,
    show_default=True,
    help="Serve the scheduler's filter, prioritize and preempt on the same port.",
)
@click.option(
    "--scheduler.parallelism",
    "parallelism",
    default=10,
    show_default=True,
    callback=note_ignored(original_flags.PARALLELISM),
    help="Accepted for the original's configurations; changes nothing.",
)
@click.option(
    "--write-config-to",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the flags of the original as a YAML file here, and exit.",
)
@click.option(
    "--kubeconfig",
    type=FILE,
    help="Kubeconfig of the API server [default: KUBECONFIG, the pod's own, ~/.kube/config].",
)
@click.option(
    "--name",
    help="Name of the Service that leads here, and of the Secret with the certificates "
    "[default: nvidia-gpu-scheduler; env MetadataName without its last part].",
)
@click.option(
    "--namespace",
    help="Namespace of the Service and the Secret [default: kube-system; env MetadataNamespace].",
)
@click.option(
    "--policy",
    default="default",
    show_default=True,
    help="Placement policy of pods that name none, with --enable-scheduler.",
)
@quota_label_options()
@click.option(
    "--silence-seconds",
    default=SILENCE_SECONDS,
    show_default=True,
    help="Mark a node unhealthy when its agent has been silent this long.",
)
@click.option(
    "--ca-configmap",
    help="namespace/name of a ConfigMap in which the authority of our certificates is kept as "
    "ca.crt, for agents to mount [default: none is written].",
)
@click.option(
    "--overlap-seconds",
    default=30.0,
    show_default=True,
    help="Let clients trust a new certificate authority for this long before it is used.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(2),
    default=8192,
    show_default=True,
    help="Connections at a time; one address has at most half of them, agents' not counted.",
)
@go_switch(
    "--custom-resources",
    show_default=True,
    help="Read the GpuNodes, GpuPods and Leases of nvidia-gpu-scheduler v0.2.0, for nodes whose "
    "agents do not report here, and write the health of nodes into their GpuNodes.",
)
@go_switch("--agents-need-node", expose_value=False, hidden=True)
@go_switch(
    "--admit-old-agents",
    show_default=True,
    help="Accept reports of nvidia-gpu-scheduler's own agents, which show no credentials.",
)
@log_options
@klog_flags
@version_flag()
def metrics_api(**flags: Any) -> None:
    """Serve which pod holds which GPU through the API server, as nvidia-gpu-scheduler does."""
    configure_logs(read_level(flags))
    if flags["write_config_to"] is not None:
        flags["write_config_to"].write_text(write_config(flags))
        return
    scheduler = serve_beside if flags["enable_scheduler"] else None
    work = partial(run_metrics_api, read_settings(flags), scheduler=scheduler)
    run_service(work, impatient=True)


def read_settings(flags: Mapping[str, Any]) -> MetricsApiSettings:
    """The settings that flags, environment and file amount to."""
    name, namespace = read_service_name(os.environ)
    authority = flags["tls_ca"]
    return MetricsApiSettings(
        kubeconfig=flags["kubeconfig"],
        policy=flags["policy"],
        quota_labels=read_quota_labels(flags),
        name=flags["name"] or name,
        namespace=flags["namespace"] or namespace,
        listen=ServerSettings(
            host=flags["bind_address"],
            port=flags["secure_port"],
            tls=None if flags["tls_auto"] else _read_tls(flags),
            request_seconds=30.0,
            stop_seconds=30.0,
            # The API server adds a header for each group of the user it speaks for, and after a
            # restart thousands of agents shake hands at once.
            limits=read_limits(
                flags, head_bytes=64 << 10, head_count=512, handshake_seconds=60, head_seconds=30
            ),
        ),
        authority=Path(authority) if authority and not flags["tls_auto"] else None,
        authority_configmap=_read_configmap(flags["ca_configmap"]),
        rules=AgentRules(admit_unknown=flags["admit_old_agents"]),
        silence_seconds=flags["silence_seconds"],
        overlap_seconds=flags["overlap_seconds"],
        custom_resources=flags["custom_resources"],
    )


def _read_configmap(text: str | None) -> tuple[str, str] | None:
    return read_namespaced_name("--ca-configmap", text) if text else None


def write_config(flags: Mapping[str, Any]) -> str:
    """The original's flags as its file has them."""
    document: dict[str, Any] = {}
    for key, name in _WRITTEN.items():
        head, dot, tail = key.partition(".")
        if dot:
            document.setdefault(head, {})[tail] = flags[name]
        else:
            document[key] = flags[name]
    return yaml.safe_dump(document, sort_keys=False)


def _read_tls(flags: Mapping[str, Any]) -> Tls:
    certificate = _read_pem("tls-config.tls-cert-file", flags)
    return Tls(certificate, _read_pem("tls-config.tls-private-key-file", flags))


def _read_pem(key: str, flags: Mapping[str, Any]) -> Path:
    given = flags[_WRITTEN[key]]
    if not given or not Path(given).is_file():
        raise click.BadParameter(f"{given!r}: expected a PEM file", param_hint=f"--{key}")
    return Path(given)
