"""Runs the extender: builds client, state, election, writer and server, and stops them in order."""

import asyncio
import contextlib
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from slicewise.dialects import DEFAULT, Dialects, QuotaLabels
from slicewise.extender.allocator import AllocatorParts, ClaimAllocator
from slicewise.extender.arbiter import ClaimArbiter
from slicewise.extender.evictor import Evictor
from slicewise.extender.fair_keeper import FairKeeper
from slicewise.extender.handlers import Extender
from slicewise.extender.leadership import Leadership
from slicewise.extender.load_reader import LoadReader
from slicewise.extender.metrics import Metrics
from slicewise.extender.recorder import Recorder
from slicewise.extender.requeuer import Requeuer
from slicewise.extender.routes import build_handler
from slicewise.extender.server import ExtenderServer
from slicewise.extender.signing import SigningService, SigningSettings
from slicewise.extender.superseded_reporter import SupersededReporter
from slicewise.extender.take_over import TakeOver
from slicewise.extender.tracing import NoTracing, Tracing, open_tracing
from slicewise.httpd import Handler, ServerSettings
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.dra.allocations import AllocationWriter
from slicewise.kube.dra.claim_writes import ClaimWrites
from slicewise.kube.dra.verdicts import VerdictWriter
from slicewise.kube.events import EventRecorder
from slicewise.kube.kubeconfig import find_access
from slicewise.kube.leading.fence import LeaseTiming
from slicewise.kube.leading.followed_lease import FollowedLease
from slicewise.kube.leading.leader_endpoints import Endpoint, LeaderEndpoints
from slicewise.kube.leading.lease import ANNOUNCED, Election
from slicewise.kube.outcomes import PodName
from slicewise.kube.pod_writer import PodWriter
from slicewise.model import MiB, SlicewiseError
from slicewise.placement.fairness import FairRules
from slicewise.state.engine_watch import EngineWatch
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings
from slicewise.state.usage.node_reports import ReportListReader
from slicewise.trust import RecordSigner, SigningKey, TrustError

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
    """A second, plain listener for probes and figures; none answers them on the first alone."""
    state: StateSettings = field(default_factory=StateSettings)
    """What of the cluster is followed, and the policy."""
    labels: QuotaLabels = field(default_factory=QuotaLabels)
    """The labels of nodes that the quota's models and pools are told by."""
    gpushare_unit: MiB | None = None
    """MiB of one aliyun.com/gpu-mem on nodes that do not tell; none tells it by their capacity."""
    commit_in_filter: bool = False
    """Whether `/scheduler/filter` writes the decision, for schedulers without a bind verb."""
    lease: tuple[str, str] = ("kube-system", "slicewise-extender")
    """Namespace and name of the lease to lead by, or to tell others by that we decide."""
    leader_elect: bool = True
    """Whether other replicas are expected, of which one leads."""
    follow: tuple[str, str] | None = None
    """Namespace and name of a scheduler's lease to lead by: whoever runs beside its holder leads,
    under the lease above. None lets the replicas choose among themselves."""
    host: str = field(default_factory=socket.gethostname)
    """The host name by which the holder of the followed lease is known to be beside us."""
    leader_services: tuple[tuple[str, str], ...] = ()
    """Namespaces and names of Services without selector that lead to the leader alone."""
    lease_timing: LeaseTiming | None = None
    """How long the lease lasts and how it is kept; none for what suits either case."""
    otlp: str | None = None
    """Address of an OpenTelemetry collector; empty for where its own variables say, none for no
    tracing."""
    bind_seconds: float = 5.0
    """The time one bind may take at the API server."""
    evict: bool = True
    """Whether pods are evicted for those of higher priority that the scheduler cannot help."""
    fair: FairRules | None = None
    """After how many seconds room is kept for a pod that waits, and how long; none keeps none."""
    signing: SigningSettings | None = field(default_factory=SigningSettings)
    """Where the keys are that records are signed with; none signs nothing, which agents refuse."""


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
        chosen = dialects.with_labels(settings.labels).count_in(settings.gpushare_unit)
        await _run(settings, stop, tracing, started, chosen)
    _log.info("stopped")


async def _run(
    settings: ExtenderSettings,
    stop: asyncio.Event,
    tracing: Tracing | NoTracing,
    started: Callable[[str], None],
    dialects: Dialects,
) -> None:
    access = read_access(settings)
    async with Client(access, agent=COMPONENT) as client, Client(access, agent=COMPONENT) as fenced:
        leadership = Leadership(elect(client, settings), fenced)
        fenced.calls = client.calls
        followed = settings.state
        if settings.signing is not None:
            followed = replace(followed, verify_seconds=None)
        state = LiveState(client, followed, obstacle=lambda: leadership.obstacle, dialects=dialects)
        leadership.relist = state.relist_pods
        leadership.election.newest_epoch = lambda: state.ledger.newest_epoch
        events = EventRecorder(client, COMPONENT)
        writes = PodWriter(fenced, state.reader, events, bind_seconds=settings.bind_seconds)
        metrics = tracing.watch(state, lambda: client.calls.counts)
        extender = _build_extender(state, writes, dialects, metrics)
        signing = _sign(client, settings, extender, state, leadership.election)
        events.busy = lambda: extender.binder.writing > 0
        service = ExtenderServer(
            extender,
            settings.listen,
            health=settings.health,
            commit_in_filter=settings.commit_in_filter,
            wrap=tracing.wrap,
        )
        own = _find_own_pod()
        requeuer = Requeuer(state, writes, lambda: datetime.now(UTC).isoformat(), own)
        leadership.report_others(metrics, events, own)
        claims, run = ClaimWrites(fenced, seconds=settings.bind_seconds), service.background.run
        async with _running(service, leadership, writes, claims):
            _point_services(fenced, settings, service, leadership)
            run("events", events.run())
            run("load", LoadReader(ReportListReader(client), state).run())
            run("requeuer", requeuer.run(state.quota_changed, state.freed.changed))
            _run_writers(service, state, writes, settings)
            _run_claims(client, service, state, (claims, writes))
            _run_signing(service.background, signing)
            _log.info("listening", url=service.url)
            started(service.url)
            loading = asyncio.create_task(state.start())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    await loading
                    # The first request should not wait for the tables to be built.
                    state.planner().warm_up(state.snapshot())
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


def _build_extender(
    state: LiveState, writes: PodWriter, dialects: Dialects, metrics: Metrics
) -> Extender:
    """The extender, which hears of pods that end before it is asked about others."""
    extender = Extender(state, writes, dialects=dialects, metrics=metrics)
    state.listener = extender.decisions.nominations
    return extender


def _run_writers(
    service: ExtenderServer, state: LiveState, writes: PodWriter, settings: ExtenderSettings
) -> None:
    """Run what writes to pods without being asked."""
    run, extender = service.background.run, service.extender
    trust = None if state.trust is None else state.trust.store
    recorder = Recorder(extender.binder, extender.metrics, trust)
    run("recorder", recorder.run(state.dirty))
    run("superseded records", SupersededReporter(state, writes).run())
    evictor = Evictor(extender.decisions, writes, extender.metrics, evict=settings.evict)
    extender.evictor = evictor
    if settings.fair is not None:
        freed = state.freed.changed.set
        evictor.fairness = FairKeeper(extender.decisions, writes, settings.fair, freed=freed)
        run("fairness", evictor.fairness.run())
    run("evictor", evictor.run())


@contextlib.asynccontextmanager
async def serve_beside(
    client: Client, state: LiveState, component: str, background: BackgroundTasks
) -> AsyncIterator[Handler]:
    """The scheduler's verbs over a state that somebody else keeps, for a service with a port."""
    events = EventRecorder(client, component)
    metrics = Metrics(state, lambda: client.calls.counts)
    extender = Extender(state, PodWriter(client, state.reader, events), metrics=metrics)
    extender.binder.signer = RecordSigner(_refuse_to_sign, lambda: 0)
    background.run("events", events.run())
    try:
        yield build_handler(extender)
    finally:
        await extender.binder.drain()


def _refuse_to_sign() -> SigningKey:
    raise TrustError(
        "no GPUs are given here, for nothing signs their records: "
        "have the scheduler ask `slicewise extender`"
    )


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
    service: ExtenderServer, leadership: Leadership, writes: PodWriter, claims: ClaimWrites
) -> AsyncIterator[None]:
    await service.start()
    binder = service.extender.binder
    leadership.election.idle = lambda: binder.writing == 0 and writes.idle and claims.idle
    service.background.run("election", leadership.run())
    try:
        yield
    finally:
        await service.background.stop()
        if writes.unsettled or claims.unsettled:
            # It may yet be carried out, so the next leader waits out our time.
            _log.warning("lease not released", reason="a write may still be under way")
        else:
            await leadership.election.release()


def _sign(
    client: Client,
    settings: ExtenderSettings,
    extender: Extender,
    state: LiveState,
    election: Election,
) -> tuple[SigningService, TakeOver] | None:
    """Have the extender sign its records, and decide nothing before it can."""
    if settings.signing is None or state.trust is None:
        return None
    signing = SigningService(client, state.trust, settings.signing, leads=lambda: election.leading)
    signing.pods = lambda: state.ledger.known_pods() if state.synced.is_set() else None
    extender.binder.signer = RecordSigner(signing.keys.require, lambda: election.epoch)
    state.hindrance = lambda: signing.hindrance
    # With the private keys, signatures are known by their codes.
    state.before_pods = signing.tried.wait
    taking = TakeOver(extender.binder, state.trust.store, state.find_notice)
    state.further_problems = lambda: (*signing.problems, *taking.problems)
    return signing, taking


def _run_signing(
    background: BackgroundTasks, signing: tuple[SigningService, TakeOver] | None
) -> None:
    if signing is not None:
        background.run("signing keys", signing[0].run())
        background.run("take-over", signing[1].run())


def _run_claims(
    client: Client, service: ExtenderServer, state: LiveState, parts: tuple[ClaimWrites, PodWriter]
) -> None:
    """Judge what schedulers allocate to claims, and allocate where they do not."""
    if state.claims is None:
        return
    writes, pods = parts
    metrics, run = service.extender.metrics, service.background.run
    arbiter = ClaimArbiter(state, VerdictWriter(writes), metrics)
    run("arbiter", arbiter.run(state.claims.changed))
    watch = EngineWatch(client, state.reader, state.settings.following)
    state.claims.listener = watch.take_claims
    followed = state.claims
    allocating = AllocatorParts(
        demand=watch,
        writer=AllocationWriter(writes),
        classes=lambda: followed.known_classes,
        post=pods.post_event,
    )
    run("watch of waiting claims", watch.run())
    run("allocator", ClaimAllocator(state, allocating, metrics).run())


def _find_own_pod() -> PodName | None:
    """The pod we run in, where its manifest tells by POD_NAMESPACE, POD_NAME and POD_UID."""
    words = ("UID", "NAMESPACE", "NAME")
    uid, namespace, name = (os.environ.get(f"POD_{word}", "") for word in words)
    return PodName(uid, namespace, name) if uid and namespace and name else None


def _point_services(
    fenced: Client, settings: ExtenderSettings, service: ExtenderServer, leadership: Leadership
) -> None:
    """Have the Services that were named lead to this process while it decides."""
    if not settings.leader_services:
        return
    pod, address = _find_own_pod(), os.environ.get("POD_IP", "")
    if pod is None or not address:
        raise SlicewiseError(
            "--leader-service: expected POD_NAMESPACE, POD_NAME, POD_UID and POD_IP in the "
            "environment, from the pod's own fields"
        )
    here = Endpoint(pod, address, service.server.port)
    endpoints = LeaderEndpoints(
        fenced, settings.leader_services, here, epoch=lambda: leadership.deciding_epoch
    )
    service.background.run("endpoints", endpoints.run())


def elect(client: Client, settings: ExtenderSettings) -> Election:
    """A candidate for the lease with a unique identity."""
    # Containers on the host's network share its name, and each of them is process 1.
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    timing = settings.lease_timing or (LeaseTiming() if settings.leader_elect else ANNOUNCED)
    election = Election(client, settings.lease, identity, timing=timing)
    election.alone = not settings.leader_elect
    if settings.follow is not None:
        election.gate = FollowedLease(client, settings.follow, settings.host)
    return election
