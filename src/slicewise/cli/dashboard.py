"""`slicewise dashboard`: one page that shows every GPU, who holds it, and who waits and why."""

import logging
from functools import partial
from typing import Any, Final

import click

from slicewise import __version__
from slicewise.cli.cluster_access import ClusterFlags, cluster_options
from slicewise.cli.options import (
    FILE,
    ServiceCommand,
    check_exposure,
    exposure_options,
    health_option,
    quota_label_options,
    read_address,
    read_health,
    read_limits,
    read_namespaced_name,
    read_quota_labels,
    read_tls,
    run_service,
    trust_option,
)
from slicewise.cli.render.logs import configure_logs
from slicewise.dashboard.run import DashboardSettings, run_dashboard
from slicewise.dashboard.server import PageSettings
from slicewise.httpd import ServerSettings, is_loopback
from slicewise.kube.kubeconfig import find_access
from slicewise.model import SlicewiseError
from slicewise.state.settings import StateSettings

DEFAULT_ADDRESS: Final = "127.0.0.1:8484"
AUTHS: Final = ("kubernetes", "none")


@click.command(
    cls=ServiceCommand,
    service="dashboard",
    short_help="Serve a page of every GPU and pod.",
)
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
@quota_label_options()
@trust_option
@click.option("--dra/--no-dra", default=False, show_default=True,
              help="Show what ResourceClaims hold as well, as an extender with --dra counts it."
              )  # fmt: skip
@click.option("--tls-cert", type=FILE, help="PEM certificate chain; read again when it changes.")
@click.option("--tls-key", type=FILE, help="PEM private key of --tls-cert.")
@exposure_options
@health_option
@click.option("--agent-port", type=int, expose_value=False, hidden=True)
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
    tls = read_tls(flags)
    check_exposure(host, tls, flags, mutual=False)
    quota = flags["quota_configmap"]
    cluster = ClusterFlags(flags["kubeconfig"], flags["context"])
    return DashboardSettings(
        access=find_access(cluster.kubeconfig, cluster.context),
        auth=auth,
        page=PageSettings(
            listen=ServerSettings(
                host=host,
                port=port,
                tls=tls,
                max_body_bytes=1,
                limits=read_limits(flags),
                any_host=auth != "none",
            ),
            health=read_health(flags["health_address"], DEFAULT_ADDRESS),
        ),
        state=StateSettings(
            quota=read_namespaced_name("--quota-configmap", quota) if quota else None,
            quota_labels=read_quota_labels(flags),
            trust=read_namespaced_name("--trust-configmap", flags["trust_configmap"]),
            claims=flags["dra"],
        ),
    )
