"""The agent's own work as metrics: container starts, requests to the API server, readiness."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slicewise.nodeagent.agent import Agent


class AgentMetrics:
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
