"""What an agent tells over HTTP and to the metrics API: usage, audit, and its own work."""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slicewise import __version__
from slicewise.diagnose.evidence import SpecFile
from slicewise.dialects import DEFAULT
from slicewise.httpd import HttpResponse, json_response
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import Holder
from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.audit.auditor import Auditor, EvidenceCollector, HolderSource
from slicewise.nodeagent.audit.spec_files import read_spec_files
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch
from slicewise.nodeagent.pages import AgentPages
from slicewise.nodeagent.settings import IdentityMode
from slicewise.nodeagent.usage.reporting import add_holders, write_report
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler
from slicewise.reports import Reporter

_REPORT_SECONDS: Final = 2.0


def build_pages(
    agent: Agent, sampler: UsageSampler, holders: HolderSource
) -> tuple[AgentPages, UsageMeter]:
    """The pages of one agent, and the meter they read."""
    meter = UsageMeter(agent.census, sampler)
    auditor = Auditor(view_node(agent, holders, sampler).collect)
    pages = AgentPages(meter, auditor=auditor, more=(_Work(agent),))
    pages.add("/agent", partial(_tell_agent, agent))
    return pages, meter


def view_node(agent: Agent, kubelet: HolderSource, sampler: UsageSampler) -> EvidenceCollector:
    """Everything that an audit of the agent's node looks at."""
    census, specs = agent.census, agent.desk.specs

    def read_specs() -> tuple[SpecFile, ...]:
        return tuple(read_spec_files(specs, census.gpus()))

    def find_gaps() -> tuple[str, ...]:
        return () if agent.synced else ("the API server: it has not told of the node's pods yet",)

    return EvidenceCollector(
        census=census,
        sampler=sampler,
        kubelet=kubelet,
        specs=read_specs if agent.identity is IdentityMode.CDI else None,
        resources=DEFAULT.resources,
        served=frozenset(each.name for _, each in agent.plan.devices if each.carries),
        gaps=find_gaps,
    )


async def _tell_agent(agent: Agent) -> HttpResponse:
    """How this agent works, for those who look after it."""
    return json_response(
        {
            "version": __version__,
            "identity": agent.identity.value,
            "ready": agent.ready,
            "resources": sorted(agent.resources),
        }
    )


async def keep_reporting(
    reporter: Reporter, meter: UsageMeter, watch: GpuWatch, kubelet: HolderSource
) -> None:
    """Tell the metrics API how the node is, again and again until cancelled."""
    holders: Iterable[Holder] = ()
    while True:
        driver = "" if watch.hardware is None else watch.hardware.driver
        # A kubelet that gives no answer has not let go of anything.
        with contextlib.suppress(KubeletError):
            holders = await kubelet.list()
        reporter.update(add_holders(write_report(meter.usage(), driver), holders))
        await asyncio.sleep(_REPORT_SECONDS)


class _Work:
    """The agent's own work as metrics."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        agent = self._agent
        starts = agent.starts
        granted = CounterMetricFamily(
            "slicewise_agent_container_starts",
            "Starts of containers that were asked about, by how they ended.",
            labels=["outcome"],
        )
        granted.add_metric(["granted"], starts.granted)
        granted.add_metric(["held_back"], starts.held_back)
        yield granted
        yield CounterMetricFamily(
            "slicewise_agent_container_start_seconds",
            "Seconds that granted starts were held up.",
            value=starts.seconds,
        )
        requests = CounterMetricFamily(
            "slicewise_agent_api_requests",
            "Requests to the API server, by verb, resource and outcome.",
            labels=["verb", "resource", "code"],
        )
        for (verb, resource, code), count in agent.requests.items():
            requests.add_metric([verb, resource, code], count)
        yield requests
        ready = GaugeMetricFamily(
            "slicewise_agent_ready", "Whether the kubelet knows every plugin and pods are known."
        )
        ready.add_metric([], float(agent.ready))
        yield ready
