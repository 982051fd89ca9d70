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
from slicewise.dialects import DEFAULT, Dialects
from slicewise.httpd import Server, ServerSettings
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
from slicewise.nodeagent import configuration
from slicewise.nodeagent.agent import COMPONENT, Agent, AgentEdges, run_together
from slicewise.nodeagent.audit.auditor import Auditor, DirectCollector, collect_from
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory, GpuWatch
from slicewise.nodeagent.gpus.health import GpuHealthTracker, RecoveryPolicy
from slicewise.nodeagent.gpus.publisher import NodePublisher, keep_published
from slicewise.nodeagent.pages import AgentMetrics, AgentPages, describe_agent
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.settings import AgentSettings, IdentityMode
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.reporting import ReportSource, SecretCredentials, keep_reporting
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler
from slicewise.nvml.driver import Driver
from slicewise.nvml.library import LibraryDriver
from slicewise.nvml.simulated import SimulatedDriver
from slicewise.reports import FileCredentials, Reporter

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How one agent is started."""

    settings: AgentSettings
    """How it runs."""
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    listen: ServerSettings = field(default_factory=ServerSettings)
    """Where health, metrics and usage are served."""
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


async def run_agent(
    options: AgentOptions,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
    dialects: Dialects | None = None,
) -> None:
    """Serve until told to stop; `started` gets the address once connections are accepted."""
    setup = read_setup(options)
    async with contextlib.AsyncExitStack() as stack:
        driver = await asyncio.to_thread(open_driver, options)
        stack.callback(driver.close)
        runtime = RuntimeClient(setup.runtime or Path("/run/containerd/containerd.sock"))
        stack.push_async_callback(runtime.close)
        settings, version = await resolve_identity(options.settings, runtime)
        holders = PodResourcesClient(settings.paths.pod_resources)
        stack.push_async_callback(holders.close)
        client = await stack.enter_async_context(
            Client(find_access(options.kubeconfig), agent=COMPONENT)
        )
        health = GpuHealthTracker(RecoveryPolicy(options.recover_seconds))
        watch = GpuWatch(driver, settings.node, health=health, scaling=setup.scaling)
        edges = AgentEdges(client, holders, runtime, version)
        agent = await start_agent(settings, watch, edges, dialects)
        sampler = UsageSampler(driver, ProcessTable(), interval_seconds=settings.sample_seconds)
        meter = UsageMeter(agent.pods, sampler)
        report = ReportSource(meter, watch, holders)
        auditor = Auditor(collect_from(agent, holders, sampler).collect)
        more = (AgentMetrics(agent),)
        pages = AgentPages(meter, report=report.read, auditor=auditor, more=more)
        pages.add("/agent", partial(describe_agent, agent))
        server = Server(pages.handle, options.listen)
        await server.start()
        stack.push_async_callback(server.stop)
        assert server.app is not None
        server.app.ready = lambda: agent.ready
        _log.info("listening", url=server.url)
        started(server.url)
        publisher = build_publisher(options, client, agent.dialects)
        work = [agent.run(), sampler.run(), keep_published(publisher, watch, agent)]
        if options.report is not None:
            reporter = build_reporter(options.report, client)
            work += [reporter.run(), keep_reporting(reporter, report)]
        # What startup made lives on; freezing keeps the garbage collector from scanning it.
        gc.collect()
        gc.freeze()
        await run_together(*work, stop=stop)
        _log.info("stopping")


async def start_agent(
    settings: AgentSettings, watch: GpuWatch, edges: AgentEdges, dialects: Dialects | None = None
) -> Agent:
    """The agent on the GPUs as they are now."""
    try:
        notice = await NodePatcher(edges.client, settings.node).read()
    except KubeError as error:
        _log.warning("node not read", error=str(error))
        notice = None
    if notice is not None:
        watch.resume(notice)
    await asyncio.to_thread(watch.look)
    assert watch.hardware is not None
    return Agent(settings, GpuInventory(settings.node, watch.hardware), edges, dialects)


def build_publisher(
    options: AgentOptions, client: Client, dialects: Dialects = DEFAULT
) -> NodePublisher:
    """What writes labels, annotations and amounts on the Node."""
    api, editions = NodePatcher(client, options.settings.node), options.settings.dialects
    return NodePublisher(
        api, editions, dialects=dialects, heartbeat_seconds=options.heartbeat_seconds
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


def build_reporter(report: ReportTarget, client: Client) -> Reporter:
    token = report.token or _TOKEN
    if report.authority is not None:
        return Reporter(report.address, FileCredentials(report.authority, token))
    secrets = SecretClient(client, *report.secret, manager=COMPONENT)
    return Reporter(report.address, SecretCredentials(secrets, token))


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
        collect = DirectCollector(pods, node, CdiSpecs(paths.cdi), driver=driver, kubelet=kubelet)
        return await Auditor(collect).audit()
    finally:
        await kubelet.close()
        driver.close()
