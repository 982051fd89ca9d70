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
from slicewise.kube.client import Client
from slicewise.kube.kubeconfig import find_access
from slicewise.metricsapi.api_versions import FIRST, SECOND
from slicewise.metricsapi.report_overlay import ReportOverlay, follow_reports
from slicewise.metricsapi.server import MetricsApiServer, MetricsApiSettings
from slicewise.state.live import LiveState, StateSettings

COMPONENT: Final = "slicewise-metrics-api"
Scheduler = Callable[[Client, LiveState, str], AbstractAsyncContextManager[Handler]]
"""Makes the handler of the scheduler's verbs, given the cluster's state and our name."""
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
        async with _scheduling(client, settings.policy, service, scheduler):
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
    client: Client, policy: str, service: MetricsApiServer, scheduler: Scheduler | None
) -> AsyncIterator[None]:
    """The scheduler's verbs beside the API, if they are wanted."""
    if scheduler is None:
        yield
        return
    state = LiveState(client, StateSettings(policy=policy))
    state.overlay = ReportOverlay(service.registry)
    try:
        async with scheduler(client, state, COMPONENT) as handler:
            service.serve_scheduler(_translate(handler))
            works = [state.start(), follow_reports(service.broadcaster, state)]
            tasks = [asyncio.create_task(work) for work in works]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await state.stop()


def _translate(handler: Handler) -> Handler:
    """The extender's handler, which serves the first release's paths alone."""

    async def handle(request: HttpRequest) -> Answer:
        if request.path.startswith(SECOND.prefix):
            path = FIRST.prefix + request.path.removeprefix(SECOND.prefix)
            request = replace(request, path=path)
        return await handler(request)

    return handle
