"""The metrics API put together: client, registry, certificates and listener.

The scheduler's verbs may be served on the same port. What agents report of GPUs and pods then
completes what the API server shows of them.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import structlog

from slicewise.httpd import Answer, Handler, HttpRequest
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.kube.client import Client
from slicewise.kube.kubeconfig import find_access
from slicewise.metricsapi.api_versions import FIRST, SECOND
from slicewise.metricsapi.report_overlay import ReportOverlay, follow_reports
from slicewise.metricsapi.server import MetricsApiServer, MetricsApiSettings
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings

COMPONENT: Final = "slicewise-metrics-api"
Scheduler = Callable[
    [Client, LiveState, str, BackgroundTasks], AbstractAsyncContextManager[Handler]
]
"""Makes the handler of the scheduler's verbs: given the state, our name and what runs beside."""
_log = structlog.get_logger(__name__)


async def run_metrics_api(
    settings: MetricsApiSettings,
    stop: asyncio.Event,
    *,
    scheduler: Scheduler | None = None,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted."""
    # Reports live long and hold no cycles; looking through them often would stop all answers.
    gc.set_threshold(50_000, 20, 50)
    async with Client(find_access(settings.kubeconfig), agent=COMPONENT) as client:
        service = MetricsApiServer(client, settings)
        followed = StateSettings(
            policy=settings.policy, quota_labels=settings.quota_labels, namespaces=True
        )
        async with _scheduling(client, followed, service, scheduler):
            starting = asyncio.create_task(service.start())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    await starting
                    _log.info("listening", url=service.url)
                    started(service.url)
                await stopping
            finally:
                starting.cancel()
                stopping.cancel()
                await asyncio.gather(starting, stopping, return_exceptions=True)
                _log.info("stopping")
                await service.stop()


@contextlib.asynccontextmanager
async def _scheduling(
    client: Client, settings: StateSettings, service: MetricsApiServer, scheduler: Scheduler | None
) -> AsyncIterator[None]:
    """The scheduler's verbs beside the API, if they are wanted."""
    if scheduler is None:
        yield
        return
    state = LiveState(client, settings)
    state.overlay = ReportOverlay(service.registry)
    try:
        async with scheduler(client, state, COMPONENT, service.background) as handler:
            service.serve_scheduler(_translate(handler), state)
            service.background.run("state", _keep_current(state))
            service.background.run("reports", follow_reports(service.broadcaster, state))
            yield
    finally:
        await state.stop()


async def _keep_current(state: LiveState) -> None:
    await state.start()
    # What follows the cluster runs on by itself; a task of ours must not end.
    await asyncio.Event().wait()


def _translate(handler: Handler) -> Handler:
    """The extender's handler, which serves the first release's paths alone."""

    async def handle(request: HttpRequest) -> Answer:
        if request.path.startswith(SECOND.prefix):
            path = FIRST.prefix + request.path.removeprefix(SECOND.prefix)
            request = replace(request, path=path)
        return await handler(request)

    return handle
