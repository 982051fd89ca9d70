"""The agent put together with its edges: driver, kubelet, runtime, API server and listener."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from slicewise.dialects import DEFAULT
from slicewise.httpd import Server, Settings
from slicewise.kube.client import Client
from slicewise.kube.kubeconfig import find_access
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.kubelet.runtime import RuntimeClient, find_socket
from slicewise.nodeagent.auditing import Auditor, Kubelet, Views
from slicewise.nodeagent.cgroups import Processes
from slicewise.nodeagent.evidence import SpecFile
from slicewise.nodeagent.inventory import Inventory, follow_driver
from slicewise.nodeagent.pages import Pages
from slicewise.nodeagent.sampling import Meter, Sampler
from slicewise.nodeagent.service import Agent, Edges
from slicewise.nodeagent.settings import AgentSettings, Identity
from slicewise.nodeagent.specfiles import read_spec_files
from slicewise.nvml.driver import Driver
from slicewise.nvml.library import LibraryDriver
from slicewise.nvml.simulated import SimulatedDriver

COMPONENT: Final = "slicewise-agent"
_RUNTIME_TRIES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """How one agent is started."""

    settings: AgentSettings
    """How it runs."""
    kubeconfig: Path | None = None
    """Kubeconfig of the API server; none looks where kubectl and pods do."""
    listen: Settings = field(default_factory=Settings)
    """Where health, metrics and usage are served."""
    simulated: bool = False
    """Whether the cards are described by a file."""
    driver_file: Path | None = None
    """The file that describes the cards, or NVML's library."""


async def run_agent(
    command: AgentCommand,
    stop: asyncio.Event,
    *,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until told to stop; `started` hears the address once connections are accepted."""
    log = structlog.get_logger(COMPONENT)
    driver = await asyncio.to_thread(open_driver, command)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(driver.close)
        settings = command.settings
        runtime = RuntimeClient(settings.paths.runtime or find_socket() or Path("/none"))
        stack.push_async_callback(runtime.close)
        settings, told = await settle_identity(settings, runtime)
        holders = PodResourcesClient(settings.paths.pod_resources)
        stack.push_async_callback(holders.close)
        client = await stack.enter_async_context(
            Client(find_access(command.kubeconfig), agent=COMPONENT)
        )
        inventory = Inventory(settings.node, await asyncio.to_thread(driver.hardware))
        agent = Agent(settings, inventory, Edges(client, holders, runtime, told))
        sampler = Sampler(driver, Processes(), interval_seconds=settings.sample_seconds)
        auditor = Auditor(view_node(agent, holders, sampler).collect)
        pages = Pages(Meter(agent.census, sampler), auditor=auditor)
        server = Server(pages.handle, command.listen)
        await server.start()
        assert server.app is not None
        server.app.ready = lambda: agent.ready
        stack.push_async_callback(server.stop)
        log.info("listening", url=server.url)
        started(server.url)
        every = settings.driver_seconds
        async with _beside(
            agent.run(), sampler.run(), follow_driver(driver, inventory, every)
        ) as work:
            # What was loaded stays, and looking through it again would only cost time.
            gc.collect()
            gc.freeze()
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({stopping, *work}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            log.info("stopping")
            for task in work:
                if task.done():
                    task.result()


def view_node(agent: Agent, kubelet: Kubelet, sampler: Sampler) -> Views:
    """Everything that an audit of the agent's node looks at."""
    census, specs = agent.census, agent.desk.specs

    def read_specs() -> tuple[SpecFile, ...]:
        return tuple(read_spec_files(specs, census.cards()))

    def find_gaps() -> tuple[str, ...]:
        return () if agent.synced else ("the API server: it has not told of the node's pods yet",)

    return Views(
        census=census,
        sampler=sampler,
        kubelet=kubelet,
        specs=read_specs if agent.settings.identity is not Identity.MATCH else None,
        resources=DEFAULT.resources,
        served=frozenset(each.name for _, each in agent.plan.devices if each.carries),
        gaps=find_gaps,
    )


def open_driver(command: AgentCommand) -> Driver:
    """The driver that is asked for; loading it may fail."""
    if command.simulated:
        return SimulatedDriver(command.driver_file, name=command.settings.node)
    return LibraryDriver(command.driver_file)


async def settle_identity(
    settings: AgentSettings, runtime: RuntimeClient
) -> tuple[AgentSettings, str]:
    """The settings with the way owners are known, and the runtime's name for itself."""
    tries = _RUNTIME_TRIES if settings.identity is None else 1
    for attempt in range(1, tries + 1):
        try:
            told = await runtime.identify()
        except KubeletError as error:
            if settings.identity is not None:
                return settings, "unknown"
            if attempt == tries:
                raise KubeletError(
                    f"{error}; cannot tell whether it knows CDI: "
                    "pass --runtime-endpoint, or --identity=cdi or match"
                ) from error
        else:
            chosen = Identity.CDI if told.cdi else Identity.MATCH
            return replace(settings, identity=settings.identity or chosen), str(told)
    raise AssertionError("one of the tries has returned or raised")


@contextlib.asynccontextmanager
async def _beside(*work: object) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that live while the block does."""
    tasks = [asyncio.ensure_future(each) for each in work]  # type: ignore[call-overload]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
