"""`slicewise dashboard`: one page that shows every GPU, who holds it, and who waits and why."""

import logging
from functools import partial
from typing import Any, Final

import click

from slicewise import __version__
from slicewise.cli.cluster_access import ClusterFlags, cluster_options
from slicewise.cli.logs import configure_logs
from slicewise.cli.options import (
    FILE,
    ServiceCommand,
    read_address,
    read_namespaced_name,
    read_tls,
    run_service,
)
from slicewise.dashboard.auth import is_loopback
from slicewise.dashboard.run import DashboardSettings, run_dashboard
from slicewise.dashboard.server import PageSettings
from slicewise.httpd import ServerSettings
from slicewise.kube.kubeconfig import find_access
from slicewise.model import SlicewiseError
from slicewise.state.live import StateSettings
from slicewise.state.node_reports import AGENT_PORT

DEFAULT_ADDRESS: Final = "127.0.0.1:8484"
AUTHS: Final = ("kubernetes", "none")


@click.command(cls=ServiceCommand, service="dashboard")
@click.option(
    "--address",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="host:port to listen on; without a host, every address of this machine.",
)
@click.option(
    "--auth",
    type=click.Choice(AUTHS),
    help="Ask each reader for a token and the API server what it may see, or let everybody in, "
    "which is for loopback alone [default: kubernetes, but none on loopback].",
)
@cluster_options
@click.option(
    "--quota-configmap",
    default="kube-system/gpuquota",
    show_default=True,
    help="namespace/name of the ConfigMap with the GPU quota of namespaces; '' for no quota.",
)
@click.option("--tls-cert", type=FILE, help="PEM certificate chain; read again when it changes.")
@click.option("--tls-key", type=FILE, help="PEM private key of --tls-cert.")
@click.option(
    "--agent-port",
    default=AGENT_PORT,
    show_default=True,
    help="Port of the nodes' agents, which are asked what is in use where no metrics API runs; "
    "0 shows allocations alone.",
)
@click.option("--verbose", is_flag=True, help="Log debug messages as well.")
@click.version_option(__version__, prog_name="slicewise")
def dashboard(**flags: Any) -> None:
    """Serve a page of every GPU: who holds it, whether it is healthy, who waits and why."""
    configure_logs(logging.DEBUG if flags["verbose"] else logging.INFO)
    try:
        settings = read_settings(flags)
    except SlicewiseError as error:
        raise click.ClickException(str(error)) from error
    run_service(partial(run_dashboard, settings))


def read_settings(flags: dict[str, Any]) -> DashboardSettings:
    """The settings that flags, environment and file amount to."""
    host, port = read_address(flags["address"], DEFAULT_ADDRESS)
    auth = flags["auth"] or ("none" if is_loopback(host) else "kubernetes")
    if auth == "none" and not is_loopback(host):
        raise click.UsageError(
            f"--auth=none shows the cluster to everybody who reaches {host}; "
            "listen on loopback or use --auth=kubernetes"
        )
    quota = flags["quota_configmap"]
    cluster = ClusterFlags(flags["kubeconfig"], flags["context"])
    return DashboardSettings(
        access=find_access(cluster.kubeconfig, cluster.context),
        auth=auth,
        page=PageSettings(
            listen=ServerSettings(
                host=host,
                port=port,
                tls=read_tls(flags["tls_cert"], flags["tls_key"]),
                max_body_bytes=1,
            )
        ),
        state=StateSettings(
            quota=read_namespaced_name("--quota-configmap", quota) if quota else None
        ),
        agent_port=flags["agent_port"] or None,
    )
