"""Builds the edges of the agent (driver, kubelet, runtime, API client, listener) and runs it."""

import asyncio
import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from slicewise.diagnose.audit_report import AuditReport
from slicewise.dialects import Dialects
from slicewise.httpd import ServerSettings
from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError
from slicewise.kube.kubeconfig import find_access
from slicewise.kube.local_pods import local_pods
from slicewise.kube.node_patch import NodePatcher
from slicewise.kube.objects import ObjectReader
from slicewise.kube.secrets import SecretClient
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.model import NodeNotice
from slicewise.nodeagent import configuration
from slicewise.nodeagent.agent import COMPONENT, Agent, AgentEdges
from slicewise.nodeagent.audit.auditor import Auditor, DirectCollector, collect_from
from slicewise.nodeagent.compat.custom_resources import CustomResourceWriter
from slicewise.nodeagent.compat.gpu_manager import GpuManagerOptions, GpuManagerParts
from slicewise.nodeagent.gpus.first_look import await_driver
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory, GpuWatch
from slicewise.nodeagent.gpus.health import GpuHealthTracker, RecoveryPolicy
from slicewise.nodeagent.gpus.publisher import NodePublisher, keep_published
from slicewise.nodeagent.limits.services import LimitServices
from slicewise.nodeagent.listeners import AgentListeners
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.pages import AgentMetrics, AgentPages, describe_agent
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.settings import CLAIMS_LABEL, AgentSettings, ClaimsMode, IdentityMode
from slicewise.nodeagent.tasks import run_together
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.reporting import ReportSource, SecretCredentials, keep_reporting
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler
from slicewise.nvml.driver import Driver
from slicewise.nvml.library import LibraryDriver
from slicewise.nvml.simulated import SimulatedDriver
from slicewise.reports import (
    Credentials,
    Endpoint,
    FileCredentials,
    NodeReport,
    ReplicaReporters,
    Reporter,
)
from slicewise.state.trust import TRUST_CONFIGMAP, Place, TrustWatch, find_trust

_log = structlog.get_logger(COMPONENT)
NODE_CONFIG: Final = Path("/etc/gpu-manager/config/config.json")
_RUNTIME_TRIES: Final = 6
# A person waits for an audit without an agent.
_AUDIT_SECONDS: Final = 3.0
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class ReportTarget:
    """The metrics API that the node's usage is reported to."""

    address: str
    """Its address, such as https://name.namespace.svc."""
    authority: Path | None = None
    """PEM authorities its certificate must be from; none takes those in its Secret."""
    token: Path | None = None
    """The token to show; none takes the pod's own."""
    secret: tuple[str, str] = ("kube-system", "nvidia-gpu-scheduler")
    """Namespace and name of the Secret in which the server keeps its authority."""
    replicas: tuple[Endpoint, ...] = ()
    """Names whose every address is a replica that is told; none tells whoever the address leads to.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How one agent is started."""

    settings: AgentSettings
    """How it runs."""
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Where health, metrics and usage are served."""
    health: ServerSettings | None = None
    """A second, plain listener for probes and figures; none answers them on the first alone."""
    simulated: bool = False
    """Whether the GPUs are described by a file."""
    driver_file: Path | None = None
    """The file that describes the GPUs, or NVML's library."""
    node_config: Path = NODE_CONFIG
    """gpu-manager's file of all nodes."""
    flags: configuration.NodeConfig = field(default_factory=configuration.NodeConfig)
    """What flags say of this node."""
    recover_seconds: float = RecoveryPolicy().first_seconds
    """How long an unhealthy GPU must stay free of faults before it takes pods again."""
    heartbeat_seconds: float | None = None
    """How often the heartbeat annotation is published; none publishes no heartbeat."""
    report: ReportTarget | None = None
    """The metrics API to report usage to; none reports to nobody."""
    custom_resources: str | None = None
    """The namespace of nvidia-gpu-scheduler v0.2.0's custom resources; none writes none."""
    trust: Place = TRUST_CONFIGMAP
    """The ConfigMap of the keys whose records are believed."""
    manager: GpuManagerOptions = field(default_factory=GpuManagerOptions)
    """How it stands in for gpu-manager."""
    fail_on_init_error: bool = False
    """Whether a driver that does not answer at the start ends the agent."""


@dataclass(slots=True)
class OutsideEdges:
    """What the agent has before it knows any GPU."""

    driver: Driver
    client: Client
    listeners: AgentListeners
    reporter: Reporter | ReplicaReporters | None = None
    """Who tells the metrics API; none tells nobody."""


async def run_agent(
    options: AgentOptions,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
    dialects: Dialects | None = None,
) -> None:
    """Serve until told to stop; `started` gets the address once connections are accepted."""
    async with contextlib.AsyncExitStack() as stack:
        driver = await asyncio.to_thread(open_driver, options)
        stack.callback(driver.close)
        client = await stack.enter_async_context(
            Client(find_access(options.kubeconfig), agent=COMPONENT)
        )
        listeners = AgentListeners(options.listen, options.health)
        stack.push_async_callback(listeners.stop)
        await listeners.start()
        _log.info("listening", url=listeners.url)
        started(listeners.url)
        outside = OutsideEdges(driver, client, listeners)
        if options.report is not None:
            outside.reporter = build_reporter(options.report, client)
        if options.fail_on_init_error:
            await asyncio.to_thread(driver.hardware)
        await _await_driver(options, outside, stop)
        if not stop.is_set():
            await _serve(stack, options, outside, stop, dialects)
            _log.info("stopping")


async def _await_driver(options: AgentOptions, outside: OutsideEdges, stop: asyncio.Event) -> None:
    """Wait until the driver answers; probes and the metrics API are told why it does not."""
    reporter, node = outside.reporter, options.settings.node

    def tell(problem: str) -> None:
        outside.listeners.unready = lambda: problem
        if reporter is not None:
            reporter.update(NodeReport(node=node, why=problem))

    telling = () if reporter is None else (reporter.run(),)
    await run_together(await_driver(outside.driver, tell), *telling, stop=stop)


async def _serve(
    stack: contextlib.AsyncExitStack,
    options: AgentOptions,
    outside: OutsideEdges,
    stop: asyncio.Event,
    dialects: Dialects | None,
) -> None:
    """Serve the GPUs that the driver lists, until told to stop."""
    setup = read_setup(options)
    driver, client = outside.driver, outside.client
    runtime = RuntimeClient(setup.runtime or Path("/run/containerd/containerd.sock"))
    stack.push_async_callback(runtime.close)
    settings, version = await resolve_identity(options.settings, runtime)
    holders = PodResourcesClient(settings.paths.pod_resources)
    stack.push_async_callback(holders.close)
    health = GpuHealthTracker(RecoveryPolicy(options.recover_seconds))
    watch = GpuWatch(driver, settings.node, health=health, scaling=setup.scaling)
    limits = await asyncio.to_thread(LimitServices.build, settings, driver)
    watch.tiers = limits.tiers.offered
    trust = TrustWatch(client, options.trust, changed=lambda _: agent.trust_changed())
    edges = AgentEdges(client, holders, runtime, version, trust.store, limits.injector)
    manager = GpuManagerParts(options.manager, settings)
    await manager.prepare()
    agent = await start_agent(settings, watch, edges, dialects)
    agent.watches.add(trust.informer)
    sampler = UsageSampler(driver, ProcessTable(), interval_seconds=settings.sample_seconds)
    meter = UsageMeter(agent.pods, sampler)
    report = ReportSource(meter, watch, holders)
    auditor = Auditor(collect_from(agent, holders, sampler, limits.detector).collect)
    more = (AgentMetrics(agent), limits.metrics(meter.usage))
    pages = AgentPages(meter, report=report.read, auditor=auditor, more=more)
    pages.add("/agent", partial(describe_agent, agent))
    outside.listeners.unready = lambda: agent.unready
    outside.listeners.serve(pages)
    await manager.open(meter)
    stack.push_async_callback(manager.close)
    publisher = build_publisher(options, client, agent)
    work = [agent.run(), trust.run(), sampler.run(), keep_published(publisher, watch, agent)]
    work += [*limits.work(agent, meter.usage, runtime.find_container), *manager.work(agent)]
    if outside.reporter is not None:
        work += [outside.reporter.run(), keep_reporting(outside.reporter, report)]
    if options.custom_resources is not None:
        work.append(
            CustomResourceWriter(client, settings.node, options.custom_resources).run(report.read)
        )
    # What startup made lives on; freezing keeps the garbage collector from scanning it.
    gc.collect()
    gc.freeze()
    await run_together(*work, stop=stop)


async def start_agent(
    settings: AgentSettings, watch: GpuWatch, edges: AgentEdges, dialects: Dialects | None = None
) -> Agent:
    """The agent on the GPUs as they are now."""
    try:
        notice = await NodePatcher(edges.client, settings.node).read()
    except KubeError as error:
        _log.warning("node not read", error=str(error))
        notice = None
    settings = resolve_claims(settings, notice)
    watch.claims = settings.claims is ClaimsMode.ALL
    watch.shared = settings.claims is not None and settings.claims.shares
    if notice is not None:
        watch.resume(notice)
    await asyncio.to_thread(watch.look)
    assert watch.hardware is not None
    inventory = GpuInventory(settings.node, watch.hardware)
    return Agent(settings, inventory, edges, dialects, facts=lambda: watch.facts)


def resolve_claims(settings: AgentSettings, notice: NodeNotice | None) -> AgentSettings:
    """The settings with a definite way of giving out GPUs: the flag's, or the Node's label."""
    if settings.claims is not None:
        return settings
    text = "" if notice is None else notice.labels.get(CLAIMS_LABEL, "")
    try:
        return replace(settings, claims=ClaimsMode(text or ClaimsMode.OFF.value))
    except ValueError:
        expected = ", ".join(each.value for each in ClaimsMode)
        _log.warning("label not understood", label=CLAIMS_LABEL, value=text, expected=expected)
        return replace(settings, claims=ClaimsMode.OFF)


def build_publisher(options: AgentOptions, client: Client, agent: Agent) -> NodePublisher:
    """What writes labels, annotations and amounts on the Node."""
    return NodePublisher(
        NodePatcher(client, options.settings.node),
        agent.offered,
        dialects=agent.dialects,
        heartbeat_seconds=options.heartbeat_seconds,
    )


def read_setup(options: AgentOptions) -> configuration.NodeSetup:
    """What file, flags and host say of this node; what cannot be read is logged."""
    config = configuration.load_node_config(options.node_config, options.settings.node)
    for problem in config.problems:
        _log.warning("node configuration not read", problem=problem)
    return configuration.resolve_setup(config, options.flags, configuration.detect_host())


def open_driver(options: AgentOptions) -> Driver:
    """The driver that the options name; loading it may fail."""
    if options.simulated:
        return SimulatedDriver(options.driver_file, name=options.settings.node)
    return LibraryDriver(options.driver_file)


def build_reporter(report: ReportTarget, client: Client) -> Reporter | ReplicaReporters:
    token = report.token or _TOKEN
    secrets = SecretClient(client, *report.secret, manager=COMPONENT)
    shown: Credentials = (
        SecretCredentials(secrets, token)
        if report.authority is None
        else FileCredentials(report.authority, token)
    )
    if not report.replicas:
        return Reporter(report.address, shown)
    return ReplicaReporters(
        lambda endpoint: Reporter(report.address, shown, endpoint=endpoint), report.replicas
    )


async def resolve_identity(
    settings: AgentSettings, runtime: RuntimeClient
) -> tuple[AgentSettings, str]:
    """The settings with a definite identity mode, and the runtime's name and version."""
    tries = _RUNTIME_TRIES if settings.identity is None else 1
    for attempt in range(1, tries + 1):
        try:
            told = await runtime.identify()
        except KubeletError as error:
            if settings.identity is not None:
                return settings, "unknown"
            if attempt == tries:
                raise KubeletError(
                    f"{error}; cannot tell whether it supports CDI: "
                    "pass --runtime-endpoint, or --identity=cdi or match"
                ) from error
        else:
            chosen = IdentityMode.CDI if told.cdi else IdentityMode.MATCH
            return replace(settings, identity=settings.identity or chosen), str(told)
    raise AssertionError("one of the tries has returned or raised")


async def audit_directly(
    options: AgentOptions, client: Client, reader: ObjectReader
) -> AuditReport:
    """What is wrong on the node, by its driver, its kubelet and the API server."""
    node, paths = options.settings.node, options.settings.paths
    driver = open_driver(options)
    kubelet = PodResourcesClient(paths.pod_resources, seconds=_AUDIT_SECONDS)
    try:
        pods = (client, local_pods(reader, node))
        known = NodePods(node, trust=await find_trust(client))
        collect = DirectCollector(pods, known, CdiSpecs(paths.cdi), driver=driver, kubelet=kubelet)
        return await Auditor(collect).audit()
    finally:
        await kubelet.close()
        driver.close()
