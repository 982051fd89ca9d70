"""What Prometheus reads of limits: what GPUs offer, and what each limited container meets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicewise.nodeagent.limits.detector import LimitDetector
from slicewise.nodeagent.limits.feed import ContainerKey, LimitedContainer, LimitedGpu
from slicewise.nodeagent.limits.grant_file import ONE
from slicewise.nodeagent.limits.usage_file import DeviceMeters
from slicewise.nodeagent.usage.node_usage import ContainerUsage, HeldGpu, NodeUsage

_LABELS: Final = ("node", "namespace", "pod", "container", "gpu", "uuid")
_GPU_LABELS: Final = ("node", "gpu", "uuid")
_WHOLE: Final = 10_000
_SECOND_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class _Row:
    labels: tuple[str, ...]
    gpu: LimitedGpu
    container: LimitedContainer
    held: HeldGpu
    unlimited: int


Read = Callable[[_Row], float | None]


def _metered(read: Callable[[DeviceMeters], float]) -> Read:
    """A number that the container's own file tells; none while the file is damaged."""
    return lambda row: None if row.gpu.meters is None else read(row.gpu.meters)


def _paced(read: Callable[[LimitedGpu], float | None]) -> Read:
    """A number of containers with a share of compute."""
    return lambda row: read(row.gpu) if row.gpu.grant.cores else None


def _registered(row: _Row) -> float | None:
    if not row.held.answers:
        return None
    return sum(pid in row.container.pids for pid in row.held.pids)


_PREFIX: Final = "slicewise_container_gpu_"
_GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    ("memory_limit_bytes", "Memory of the GPU that the container is limited to.",
     lambda row: row.gpu.grant.memory_bytes or None),
    ("memory_tracked_bytes", "Memory that the container's processes say they allocated.",
     lambda row: row.gpu.tracked_bytes),
    ("memory_overhead_bytes", "Memory that the driver counts for the container beyond that.",
     lambda row: row.gpu.fed.overhead_bytes),
    ("compute_ceiling_ratio", "Compute that the container may use now; 1 is all of the GPU.",
     _paced(lambda gpu: gpu.fed.ceiling / _WHOLE)),
    ("compute_scale_ratio", "By what the times of the container's launches are multiplied.",
     _paced(lambda gpu: gpu.fed.scale / ONE)),
    ("processes_limited", "Processes of the container on the GPU that the library holds.",
     _registered),
    ("processes_unlimited", "Processes of the container on the GPU that nothing holds.",
     lambda row: row.unlimited),
    ("limit_error_ratio",
     "Measured use over the ceiling while the container is held back, minus 1.",
     lambda row: row.gpu.error_ratio),
)  # fmt: skip
_COUNTERS: Final[tuple[tuple[str, str, Read], ...]] = (
    ("memory_refused", "Allocations that were refused.", _metered(lambda each: each.refused)),
    ("throttled_seconds", "Seconds that launches waited.",
     _metered(lambda each: each.throttled_ns / _SECOND_NS)),
    ("launches", "Launches of the container's processes.", _metered(lambda each: each.launches)),
    ("timed_launches", "Launches whose time was measured.", _metered(lambda each: each.timed)),
)  # fmt: skip


class LimitMetrics(Collector):
    """The families of limits over the usage of now."""

    def __init__(
        self,
        usage: Callable[[], NodeUsage],
        limited: Callable[[], Mapping[ContainerKey, LimitedContainer]],
        detector: LimitDetector,
    ) -> None:
        self._usage = usage
        self._limited = limited
        self._detector = detector

    def collect(self) -> Iterable[Metric]:
        usage = self._usage()
        yield _list_offered(usage)
        yield _list_promised(usage)
        rows = list(self._rows(usage))
        for name, text, read in _GAUGES:
            yield _fill(GaugeMetricFamily(_PREFIX + name, text, labels=_LABELS), rows, read)
        for name, text, read in _COUNTERS:
            yield _fill(CounterMetricFamily(_PREFIX + name, text, labels=_LABELS), rows, read)

    def _rows(self, usage: NodeUsage) -> Iterator[_Row]:
        limited, findings = self._limited(), self._detector.findings
        for each in usage.containers:
            known = limited.get((each.pod.uid, each.container.name))
            for held in () if known is None else each.gpus:
                assert known is not None
                uuid = held.device.gpu.uuid
                gpu = known.gpus.get(uuid)
                if gpu is not None:
                    found = findings.count_unlimited(each.pod.uid, each.container.name, uuid)
                    yield _Row(_name(usage, each, held), gpu, known, held, found)


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[_Row], read: Read
) -> Metric:
    for row in rows:
        value = read(row)
        if value is not None:
            family.add_metric(row.labels, value)
    return family


def _list_offered(usage: NodeUsage) -> Metric:
    text = "Tiers of isolation that the GPU offers; always 1."
    labels = (*_GPU_LABELS, "resource", "tier")
    family = GaugeMetricFamily("slicewise_gpu_isolation", text, labels=labels)
    for each in usage.gpus:
        gpu = each.device.gpu
        tiers = (("memory", gpu.isolation.memory), ("compute", gpu.isolation.compute))
        for resource, offered in tiers:
            for word in [tier.word for tier in offered] or ["none"]:
                family.add_metric((usage.node, str(gpu.index), gpu.uuid, resource, word), 1)
    return family


def _list_promised(usage: NodeUsage) -> Metric:
    text = "The tier that the container's record promises; always 1."
    labels = (*_LABELS, "resource", "tier")
    family = GaugeMetricFamily("slicewise_container_gpu_isolation", text, labels=labels)
    for each in usage.containers:
        promised = each.pod.isolation(each.container.name)
        for held in each.gpus:
            name = _name(usage, each, held)
            if promised is None:
                continue
            family.add_metric((*name, "memory", promised.memory.word), 1)
            family.add_metric((*name, "compute", promised.compute.word), 1)
    return family


def _name(usage: NodeUsage, each: ContainerUsage, held: HeldGpu) -> tuple[str, ...]:
    gpu = held.device.gpu
    owner = (each.pod.namespace, each.pod.name, each.container.name)
    return (usage.node, *owner, str(gpu.index), gpu.uuid)
