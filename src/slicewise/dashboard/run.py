"""The page put together: client, state, readers' rights, source of usage and listener."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from slicewise import __version__
from slicewise.dashboard.auth import AccessDecision, Authorizer, LoopbackAuthorizer, TokenAuthorizer
from slicewise.dashboard.server import DashboardServer, PageSettings
from slicewise.dashboard.usage import ReportedUsage, UsageSource
from slicewise.kube.access_reviews import AccessReviews, ResourceAttributes
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.reads import find_pod
from slicewise.state.cluster_state import ClusterState
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings

COMPONENT: Final = "slicewise-dashboard"
_NEEDED: Final = tuple(
    ResourceAttributes(verb="list", group="metrics.nvidia.com", version="v1alpha1", resource=name)
    for name in ("podresources", "gpuinfos")
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    access: Access
    """How the API server is reached."""
    auth: str = "none"
    """Who may look: `kubernetes` asks the API server, `none` lets everybody in, on loopback."""
    page: PageSettings = field(default_factory=PageSettings)
    """Where and how it is served."""
    state: StateSettings = field(default_factory=StateSettings)
    """What of the cluster is followed."""


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
    async with Client(settings.access, agent=f"{COMPONENT}/{__version__}") as client:
        state = LiveState(client, settings.state)
        authorizer = build_authorizer(settings.auth, client)
        usage: UsageSource = ReportedUsage(client, state) if measure is None else measure(state)
        find = partial(find_pod, client, state.reader)
        service = DashboardServer(state, find, settings.page, authorizer=authorizer, usage=usage)
        state.listener = service.updater
        await service.start()
        loading = asyncio.create_task(state.start())
        loading.add_done_callback(partial(_stop_on_failure, stop))
        try:
            _log.info("listening", url=service.url, auth=settings.auth)
            if authorizer.wants_token and settings.page.listen.tls is None:
                _log.warning("tokens come in the clear: pass --tls-cert, or stand behind TLS")
            started(service.url)
            await stop.wait()
            if loading.done():
                await loading
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await service.stop()
            await state.stop()
            _log.info("stopped")


def build_authorizer(auth: str, client: Client) -> Authorizer:
    """Who may look: everybody on this machine, or whoever may list what the metrics API shows."""
    if auth == "none":
        return LoopbackAuthorizer()
    reviews = AccessReviews(client)

    async def check(token: str) -> AccessDecision:
        user = await reviews.identify(token)
        if user is None:
            return AccessDecision.UNAUTHENTICATED
        for attributes in _NEEDED:
            if not await reviews.permits(user, attributes):
                return AccessDecision.FORBIDDEN
        return AccessDecision.ALLOWED

    return TokenAuthorizer(check)


def _stop_on_failure(stop: asyncio.Event, loading: asyncio.Task[None]) -> None:
    """Stop when the cluster cannot be loaded; the error is raised then."""
    if not loading.cancelled() and loading.exception() is not None:
        stop.set()
