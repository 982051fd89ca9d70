"""The metrics API put together with the extender: one process, one port, one certificate.

What agents tell of GPUs and pods completes what the API server shows of them.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from slicewise.extender.handlers import Extender
from slicewise.extender.metrics import Metrics
from slicewise.extender.routes import build_handler
from slicewise.httpd import Answer, Handler, HttpRequest
from slicewise.kube.client import Client
from slicewise.kube.events import EventRecorder
from slicewise.kube.kubeconfig import find_access
from slicewise.kube.pod_writer import PodWriter
from slicewise.metricsapi.api_versions import FIRST, SECOND
from slicewise.metricsapi.report_overlay import ReportOverlay, follow_reports
from slicewise.metricsapi.server import MetricsApiServer, MetricsApiSettings
from slicewise.state.live import LiveState, StateSettings

COMPONENT: Final = "slicewise-metrics-api"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsApiOptions:
    """How one metrics API runs."""

    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    policy: str = "default"
    """The scheduler's policy for pods that name none."""
    scheduler: bool = True
    """Whether the scheduler's verbs are served."""
    service: MetricsApiSettings = field(default_factory=MetricsApiSettings)
    """Everything else."""


async def run_metrics_api(
    settings: MetricsApiOptions,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted."""
    log = structlog.get_logger(COMPONENT)
    # Reports live long and hold no cycles; looking through them often would stop all answers.
    gc.set_threshold(50_000, 20, 50)
    async with Client(find_access(settings.kubeconfig), agent=COMPONENT) as client:
        service = MetricsApiServer(client, settings.service)
        async with _deciding(client, settings, service):
            starting = asyncio.create_task(service.start())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    await starting
                    log.info("listening", url=service.url)
                    started(service.url)
                await stopping
            finally:
                starting.cancel()
                stopping.cancel()
                await asyncio.gather(starting, stopping, return_exceptions=True)
                log.info("stopping")
                await service.stop()


@contextlib.asynccontextmanager
async def _deciding(
    client: Client, settings: MetricsApiOptions, service: MetricsApiServer
) -> AsyncIterator[None]:
    """The extender beside the API, if it is wanted."""
    if not settings.scheduler:
        yield
        return
    state = LiveState(client, StateSettings(policy=settings.policy))
    state.witness = ReportOverlay(service.registry)
    events = EventRecorder(client, COMPONENT)
    metrics = Metrics(state, lambda: client.calls.counts)
    extender = Extender(state, PodWriter(client, state.reader, events), metrics=metrics)
    service.serve_scheduler(_translate(build_handler(extender)))
    works = [events.run(), state.start(), follow_reports(service.broadcaster, state)]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await extender.binder.drain()
        await state.stop()


def _translate(handler: Handler) -> Handler:
    """The extender's handler, which knows the first release's paths alone."""

    async def handle(request: HttpRequest) -> Answer:
        if request.path.startswith(SECOND.prefix):
            path = FIRST.prefix + request.path.removeprefix(SECOND.prefix)
            request = replace(request, path=path)
        return await handler(request)

    return handle
