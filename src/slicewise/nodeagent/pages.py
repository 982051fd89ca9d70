"""The agent's pages over HTTP: metrics, usage, version and audit, on the paths users know.

`/metric` is gpu-manager's page alone; `/metrics` carries the same families, elastic's and ours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicewise import __version__
from slicewise.diagnose.audit_report import write_audit
from slicewise.httpd import Answer, Handler, HttpRequest, HttpResponse, Router, json_response
from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.audit.auditor import Auditor
from slicewise.nodeagent.compat.compat_metrics import collect_exporter, collect_manager
from slicewise.nodeagent.compat.manager_pages import draw_graph, write_manager_usage
from slicewise.nodeagent.plugin.refusals import RefusalCause
from slicewise.nodeagent.usage.metrics import collect_own, render
from slicewise.nodeagent.usage.reporting import write_report
from slicewise.nodeagent.usage.sampler import UsageMeter
from slicewise.reports import NodeReport
from slicewise.state.watch_metrics import collect_watches

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class AgentPages:
    """The handler of the agent's pages; `more` are metrics of the rest of the agent."""

    def __init__(
        self,
        meter: UsageMeter,
        *,
        report: Callable[[], Awaitable[NodeReport]] | None = None,
        auditor: Auditor | None = None,
        more: Iterable[Collector] = (),
    ) -> None:
        self._meter = meter
        self._report = report or self._measure
        self._more = tuple(more)
        self.router = Router(lenient=True)
        self.figures = Router(lenient=True)
        """What Prometheus reads and nothing else, for a listener without TLS."""
        for path, page in (("/metrics", self._metrics), ("/metric", self._metric)):
            self.add(path, page)
            self.figures.add(path, _ignore_request(page))
        self.add("/usage", self._usage)
        self.add("/usage/gpus", self._gpus)
        self.add("/graph", self._graph)
        self.add("/version", self._version)
        if auditor is not None:
            self.add("/audit", partial(self._audit, auditor))

    def add(self, path: str, page: Callable[[], Awaitable[Answer]]) -> None:
        """Serve one more page under this path."""
        self.router.add(path, _ignore_request(page))

    async def _metrics(self) -> HttpResponse:
        usage = self._meter.usage()
        metrics = [
            *collect_own(usage, self._meter.tally),
            *collect_manager(usage),
            *collect_exporter(usage),
        ]
        metrics += [metric for source in self._more for metric in source.collect()]
        return await _answer(metrics)

    async def _metric(self) -> HttpResponse:
        return await _answer(collect_manager(self._meter.usage()))

    async def _usage(self) -> HttpResponse:
        return json_response(write_manager_usage(self._meter.usage()))

    async def _gpus(self) -> HttpResponse:
        return HttpResponse(200, msgspec.json.encode(await self._report()))

    async def _measure(self) -> NodeReport:
        return write_report(self._meter.usage(), "")

    async def _graph(self) -> HttpResponse:
        return json_response({"graph": draw_graph(self._meter.usage(), self._meter.links())})

    async def _audit(self, auditor: Auditor) -> HttpResponse:
        return json_response(write_audit(await auditor.audit()))

    async def _version(self) -> HttpResponse:
        return json_response({"version": __version__})


def _ignore_request(page: Callable[[], Awaitable[Answer]]) -> Handler:
    async def handle(_: HttpRequest) -> Answer:
        return await page()

    return handle


async def _answer(metrics: Iterable[Metric]) -> HttpResponse:
    # Writing a few thousand lines takes long enough for a container start to notice.
    text = await asyncio.to_thread(render, tuple(metrics))
    return HttpResponse(200, text, content_type=CONTENT_TYPE)


async def describe_agent(agent: Agent) -> HttpResponse:
    """How this agent works, for its administrators."""
    return json_response(
        {
            "version": __version__,
            "identity": agent.identity.value,
            "ready": agent.ready,
            "resources": sorted(agent.resources),
        }
    )


class AgentMetrics(Collector):
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        agent, starts = self._agent, self._agent.starts
        text = "Container starts by outcome, granted or held back."
        ended = CounterMetricFamily("slicewise_agent_container_starts", text, labels=["outcome"])
        ended.add_metric(["granted"], starts.granted)
        ended.add_metric(["held_back"], starts.held_back)
        yield ended
        text = "Container starts refused by the signature of a record or a GPU without room."
        refused = CounterMetricFamily("slicewise_starts_refused", text, labels=["reason"])
        for cause in RefusalCause:
            refused.add_metric([cause.value], agent.refusals.counts[cause])
        yield refused
        yield CounterMetricFamily(
            "slicewise_agent_container_start_seconds",
            "Seconds that granted container starts waited for the agent.",
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
        text = "Whether the kubelet knows every plugin, and pods are known and current."
        yield GaugeMetricFamily("slicewise_agent_ready", text, float(agent.ready))
        yield from collect_watches(agent.watches)
