"""Runs the extender: builds client, state, election, writer and server, and stops them in order."""

import asyncio
import contextlib
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from slicewise.dialects import DEFAULT, Dialects
from slicewise.extender.handlers import Extender
from slicewise.extender.metrics import Metrics
from slicewise.extender.recorder import Recorder
from slicewise.extender.requeuer import Requeuer
from slicewise.extender.routes import build_handler
from slicewise.extender.server import ExtenderServer
from slicewise.extender.tracing import NoTracing, Tracing, open_tracing
from slicewise.httpd import Handler, ServerSettings
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.events import EventRecorder
from slicewise.kube.kubeconfig import find_access
from slicewise.kube.lease import Election, LeaseTiming
from slicewise.kube.outcomes import PodName
from slicewise.kube.pod_writer import PodWriter
from slicewise.state.live import LiveState, StateSettings

COMPONENT = "slicewise-extender"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    master: str | None = None
    """Address of the API server in place of the kubeconfig's."""
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Address, certificates and limits of the listener."""
    health: ServerSettings | None = None
    """A second, plain listener for probes alone; none answers them on the first."""
    state: StateSettings = field(default_factory=StateSettings)
    """What of the cluster is followed, and the policy."""
    commit_in_filter: bool = False
    """Whether `/scheduler/filter` writes the decision, for schedulers without a bind verb."""
    lease: tuple[str, str] | None = None
    """Namespace and name of the lease to lead by; none leads alone."""
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    """How long the lease lasts and how it is kept."""
    otlp: str | None = None
    """Address of an OpenTelemetry collector; empty for where its own variables say, none for no
    tracing."""
    bind_seconds: float = 5.0
    """The time one bind may take at the API server."""


def read_access(settings: ExtenderSettings) -> Access:
    if settings.master and settings.kubeconfig is None and not os.environ.get("KUBECONFIG"):
        return Access(settings.master.rstrip("/"))
    access = find_access(settings.kubeconfig)
    return replace(access, server=settings.master.rstrip("/")) if settings.master else access


async def run_extender(
    settings: ExtenderSettings,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
    dialects: Dialects = DEFAULT,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted."""
    with contextlib.closing(open_tracing(settings.otlp)) as tracing:
        await _run(settings, stop, tracing, started, dialects)
    _log.info("stopped")


async def _run(
    settings: ExtenderSettings,
    stop: asyncio.Event,
    tracing: Tracing | NoTracing,
    started: Callable[[str], None],
    dialects: Dialects,
) -> None:
    async with Client(read_access(settings), agent=COMPONENT) as client:
        election = elect(client, settings)
        state = LiveState(
            client,
            settings.state,
            may_decide=lambda: election is None or election.leading,
            dialects=dialects,
        )
        events = EventRecorder(client, COMPONENT)
        writes = PodWriter(client, state.reader, events, bind_seconds=settings.bind_seconds)
        metrics = tracing.watch(state, lambda: client.calls.counts)
        extender = Extender(state, writes, dialects=dialects, metrics=metrics)
        events.busy = lambda: extender.binder.writing > 0
        service = ExtenderServer(
            extender,
            settings.listen,
            health=settings.health,
            commit_in_filter=settings.commit_in_filter,
            wrap=tracing.wrap,
        )
        recorder = Recorder(extender.binder, extender.metrics)
        requeuer = Requeuer(state, writes, lambda: datetime.now(UTC).isoformat(), _find_own_pod())
        beside = (recorder.run(state.dirty), requeuer.run(state.quota_changed))
        async with _running(service, events, election, *beside):
            _log.info("listening", url=service.url)
            started(service.url)
            loading = asyncio.create_task(state.start())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    await loading
                    # The first request should not wait for the tables to be built.
                    state.planner().tables.sync(state.snapshot())
                    # What was loaded lives on; collecting it again would pause all answers.
                    gc.collect()
                    gc.freeze()
                await stopping
            finally:
                loading.cancel()
                stopping.cancel()
                await asyncio.gather(loading, stopping, return_exceptions=True)
                _log.info("stopping")
                # Binds under way are completed before the lease is released.
                await service.stop()
                await state.stop()


@contextlib.asynccontextmanager
async def serve_beside(client: Client, state: LiveState, component: str) -> AsyncIterator[Handler]:
    """The scheduler's verbs over a state that somebody else keeps, for a service with a port."""
    events = EventRecorder(client, component)
    metrics = Metrics(state, lambda: client.calls.counts)
    extender = Extender(state, PodWriter(client, state.reader, events), metrics=metrics)
    recording = asyncio.create_task(events.run())
    try:
        yield build_handler(extender)
    finally:
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)
        await extender.binder.drain()


@contextlib.asynccontextmanager
async def open_extender(
    client: Client, settings: StateSettings, seconds: float
) -> AsyncIterator[Extender]:
    """An extender without a listener, for a command; raises TimeoutError if it does not sync."""
    state = LiveState(client, settings)
    try:
        async with asyncio.timeout(seconds):
            await state.start()
        yield Extender(state, PodWriter(client, state.reader))
    finally:
        await state.stop()


@contextlib.asynccontextmanager
async def _running(
    service: ExtenderServer,
    events: EventRecorder,
    election: Election | None,
    *beside: Coroutine[Any, Any, None],
) -> AsyncIterator[None]:
    await service.start()
    tasks = [asyncio.create_task(work) for work in (events.run(), *beside)]
    if election is not None:
        tasks.append(asyncio.create_task(election.run(lambda _: None)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if election is not None:
            await election.release()


def _find_own_pod() -> PodName | None:
    """The pod we run in, where its manifest tells by POD_NAMESPACE, POD_NAME and POD_UID."""
    names = [os.environ.get(f"POD_{word}", "") for word in ("UID", "NAMESPACE", "NAME")]
    return PodName(*names) if all(names) else None


def elect(client: Client, settings: ExtenderSettings) -> Election | None:
    """A candidate for the lease with a unique identity; None without a lease."""
    if settings.lease is None:
        return None
    # Containers on the host's network share its name, and each of them is process 1.
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    return Election(client, settings.lease, identity, timing=settings.lease_timing)
