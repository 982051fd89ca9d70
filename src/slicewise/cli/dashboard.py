"""`slicewise dashboard`: one page that shows every GPU, who holds it, and who waits and why."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from slicewise import __version__
from slicewise.cli.cluster_access import FILE, ClusterFlags, cluster_options
from slicewise.cli.logs import configure_logs
from slicewise.dashboard.auth import (
    AccessDecision,
    Authorizer,
    LoopbackAuthorizer,
    TokenAuthorizer,
    is_loopback,
)
from slicewise.dashboard.reported_usage import ReportedUsage
from slicewise.dashboard.server import DashboardServer, PageSettings
from slicewise.dashboard.usage import UsageSource
from slicewise.httpd import ServerSettings, Tls
from slicewise.kube.access_reviews import AccessReviews, ResourceAttributes
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.kubeconfig import find_access
from slicewise.kube.reads import find_pod
from slicewise.model import SlicewiseError
from slicewise.state.live import LiveState, StateSettings
from slicewise.state.node_reports import AGENT_PORT
from slicewise.state.ports import ClusterState

COMPONENT: Final = "slicewise-dashboard"
DEFAULT_ADDRESS: Final = "127.0.0.1:8484"
_DEEDS: Final = tuple(
    ResourceAttributes(
        verb="list", group="metrics.nvidia.com", version="v1alpha1", resource=resource
    )
    for resource in ("podresources", "gpuinfos")
)
AUTHS: Final = ("kubernetes", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """How one page runs."""

    access: Access
    """How the API server is reached."""
    auth: str = "none"
    """Who may look: `kubernetes` asks the API server, `none` lets everybody in, on loopback."""
    habits: PageSettings = field(default_factory=PageSettings)
    """Where and how it is served."""
    state: StateSettings = field(default_factory=StateSettings)
    """What of the cluster is followed."""
    agent_port: int | None = None
    """Where nodes' agents tell what is in use; none does not ask."""


@click.command()
@click.option("--address", default=DEFAULT_ADDRESS, show_default=True, help="host:port.")
@click.option(
    "--auth",
    type=click.Choice(AUTHS),
    help="Ask the API server who may look [default: kubernetes, but none on loopback].",
)
@cluster_options
@click.option("--quota-configmap", default="kube-system/gpuquota", show_default=True)
@click.option("--tls-cert", type=FILE, help="PEM certificate chain; read again when it changes.")
@click.option("--tls-key", type=FILE, help="PEM key of that certificate.")
@click.option(
    "--agent-port", default=AGENT_PORT, show_default=True, help="Of the nodes' agents; 0 for none."
)
@click.option("--verbose", is_flag=True, help="Log more.")
def dashboard(**flags: Any) -> None:
    """Serve a page of every GPU: who holds it, how well it is, who waits and why."""
    configure_logs(logging.DEBUG if flags["verbose"] else logging.INFO)

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await run_dashboard(settings, stop)

    try:
        settings = read_settings(flags)
        asyncio.run(serve())
    except (SlicewiseError, OSError) as error:
        raise click.ClickException(str(error)) from error


def read_settings(flags: dict[str, Any]) -> DashboardSettings:
    """The settings that the flags amount to."""
    host, colon, number = flags["address"].rpartition(":")
    if not colon or not number.isdecimal() or int(number) > 65535:
        raise click.BadParameter(
            f"{flags['address']!r}: expected host:port", param_hint="--address"
        )
    host = host.strip("[]") or "0.0.0.0"
    auth = flags["auth"] or ("none" if is_loopback(host) else "kubernetes")
    if auth == "none" and not is_loopback(host):
        raise click.UsageError(
            f"--auth=none shows the cluster to everybody who reaches {host}; "
            "listen on loopback or use --auth=kubernetes"
        )
    namespace, slash, name = flags["quota_configmap"].partition("/")
    if flags["quota_configmap"] and not (slash and namespace and name):
        raise click.BadParameter("expected namespace/name", param_hint="--quota-configmap")
    reach = ClusterFlags(flags["kubeconfig"], flags["context"])
    return DashboardSettings(
        access=find_access(reach.kubeconfig, reach.context),
        auth=auth,
        habits=PageSettings(
            listen=ServerSettings(
                host=host, port=int(number), tls=_read_tls(flags), max_body_bytes=1
            )
        ),
        state=StateSettings(quota=(namespace, name) if name else None),
        agent_port=flags["agent_port"] or None,
    )


async def run_dashboard(
    settings: DashboardSettings,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
    measure: Callable[[ClusterState], UsageSource] | None = None,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted.

    `measure` tells what is in use, in place of the nodes' agents.
    """
    log = structlog.get_logger(COMPONENT)
    async with Client(settings.access, agent=f"{COMPONENT}/{__version__}") as client:
        state = LiveState(client, settings.state)
        gate = build_gate(settings.auth, client)
        find = partial(find_pod, client, state.reader)
        uses: UsageSource | None = None
        if measure is not None:
            uses = measure(state)
        elif settings.agent_port is not None:
            uses = ReportedUsage(client, state, settings.agent_port)
        service = DashboardServer(state, find, settings.habits, gate=gate, uses=uses)
        state.listener = service.keeper
        await service.start()
        loading = asyncio.create_task(state.start())
        loading.add_done_callback(partial(_notice_end, stop))
        try:
            log.info("listening", url=service.url, auth=settings.auth)
            if gate.wants_token and settings.habits.listen.tls is None:
                log.warning("tokens come in the clear: pass --tls-cert, or stand behind TLS")
            started(service.url)
            await stop.wait()
            if loading.done():
                await loading
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await service.stop()
            await state.stop()
            log.info("stopped")


def build_gate(auth: str, client: Client) -> Authorizer:
    """Who may look: everybody here, or whoever may list what the metrics API shows."""
    if auth == "none":
        return LoopbackAuthorizer()
    reviews = AccessReviews(client)

    async def check(token: str) -> AccessDecision:
        user = await reviews.identify(token)
        if user is None:
            return AccessDecision.UNKNOWN
        for deed in _DEEDS:
            if not await reviews.permits(user, deed):
                return AccessDecision.FORBIDDEN
        return AccessDecision.WELCOME

    return TokenAuthorizer(check)


def _notice_end(stop: asyncio.Event, loading: asyncio.Task[None]) -> None:
    """Stop when the cluster cannot be loaded, which is then told."""
    if not loading.cancelled() and loading.exception() is not None:
        stop.set()


def _read_tls(flags: dict[str, Any]) -> Tls | None:
    certificate: Path | None = flags["tls_cert"]
    key: Path | None = flags["tls_key"]
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key are only of use together")
    return Tls(certificate, key)
