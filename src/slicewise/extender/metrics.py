"""Prometheus metrics of the extender."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slicewise.state.cluster_state import ClusterState
from slicewise.state.watch_metrics import collect_watches

CallCounts = Callable[[], Mapping[tuple[str, str, str], int]]
"""Calls made to the API server so far, by verb, resource and code."""

_SECONDS = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Latencies by verb and stage, decisions by reason, and the ledger as it is when read."""

    def __init__(self, state: ClusterState, calls: CallCounts | None = None) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "slicewise_extender_seconds",
            "How long each stage of each verb took.",
            ["verb", "stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._decisions = Counter(
            "slicewise_extender_decisions",
            "Answers by verb and reason; a filter counts once for every node that gave it.",
            ["verb", "reason"],
            registry=self.registry,
        )
        self._requests = Counter(
            "slicewise_extender_requests",
            "Requests by route and status code.",
            ["route", "code"],
            registry=self.registry,
        )
        self._other_deciders = Counter(
            "slicewise_extender_other_deciders",
            "How often another extender was found to decide beside this one.",
            registry=self.registry,
        )
        self.registry.register(_Readings(state, calls))
        # Finding a series by its labels costs more than counting in it.
        self._stage_series = cache(self._seconds.labels)
        self._decision_series = cache(self._decisions.labels)
        self._request_series = cache(self._requests.labels)

    def stage(self, verb: str, stage: str) -> AbstractContextManager[None]:
        return StageTimer(self._stage_series(verb, stage))

    def decided(self, verb: str, reason: str, count: int = 1) -> None:
        self._decision_series(verb, reason).inc(count)

    def found_other_decider(self) -> None:
        self._other_deciders.inc()

    def answered(self, route: str, code: int) -> None:
        self._request_series(route, code).inc()

    def count_cuts(self, cuts: Callable[[], Mapping[str, int]]) -> None:
        """Show which connections were cut, by what their clients failed to do."""
        self.registry.register(_Cuts(cuts))

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Cuts:
    def __init__(self, cuts: Callable[[], Mapping[str, int]]) -> None:
        self._cuts = cuts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        text = "Connections that were cut, by what their client failed to do."
        cut = CounterMetricFamily("slicewise_extender_connections_cut", text, labels=["reason"])
        for reason, count in sorted(self._cuts().items()):
            cut.add_metric([reason], count)
        yield cut


class StageTimer:
    """Times a block, whether or not it raises."""

    __slots__ = ("_series", "_start")

    def __init__(self, series: Histogram) -> None:
        self._series = series
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *ending: object) -> None:
        self._series.observe(time.perf_counter() - self._start)


class _Readings:
    """A collector of gauges that are computed at scrape time."""

    def __init__(self, state: ClusterState, calls: CallCounts | None) -> None:
        self._state = state
        self._calls = calls

    def describe(self) -> list[Metric]:
        """Nothing in advance, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The ledger and the calls to the API server as they are now."""
        yield from self._collect_ledger()
        yield from collect_watches(self._state.watches)
        if self._calls is None:
            return
        calls = CounterMetricFamily(
            "slicewise_api_calls", "Calls to the API server.", labels=["verb", "resource", "code"]
        )
        for labels, count in sorted(self._calls().items()):
            calls.add_metric(labels, count)
        yield calls

    def _collect_ledger(self) -> Iterator[Metric]:
        ledger, snapshot = self._state.ledger, self._state.snapshot()
        gpus = cores = memory = total = 0
        for state in snapshot:
            gpus += len(state.node.gpus)
            cores += sum(state.used_cores)
            memory += sum(state.used_memory)
            total += sum(gpu.memory for gpu in state.node.gpus)
        for name, text, value in (
            (
                "ready",
                "1 when this process is current and leads, 0 otherwise.",
                int(self._state.ready),
            ),
            ("nodes", "Nodes in the ledger.", len(snapshot)),
            ("gpus", "GPUs in the ledger.", gpus),
            ("pods", "Pods in the ledger.", ledger.pods),
            ("claims", "ResourceClaims in the ledger.", len(ledger.claims)),
            (
                "waiting_claims",
                "ResourceClaims that wait for a verdict on what was allocated to them.",
                sum(1 for _ in ledger.claims.waiting()),
            ),
            (
                "assumed_pods",
                "Allocations assumed and not yet confirmed by the API server.",
                ledger.unconfirmed,
            ),
            ("gpu_percent_held", "Percent of GPU compute allocated, summed over all GPUs.", cores),
            ("gpu_memory_held_mib", "MiB of GPU memory allocated, summed over all GPUs.", memory),
            ("gpu_memory_mib", "MiB of GPU memory in total.", total),
        ):
            yield GaugeMetricFamily(f"slicewise_ledger_{name}", text, value)
        problems = GaugeMetricFamily(
            "slicewise_ledger_problems", "Things that need a person.", labels=["trouble"]
        )
        counts: dict[str, int] = {}
        for problem in self._state.problems():
            counts[problem.trouble] = counts.get(problem.trouble, 0) + 1
        for trouble, count in sorted(counts.items()):
            problems.add_metric([trouble], count)
        yield problems
