"""What Prometheus reads of a node under our own names, in bytes, ratios, watts and seconds.

A container's series exist for as long as it holds a GPU; those of use are left out only while
the GPU does not answer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slicewise.model import BYTES_PER_MIB
from slicewise.nodeagent.usage.node_usage import GpuUsage, HeldGpu, NodeUsage
from slicewise.nodeagent.usage.sampler import SamplingStats
from slicewise.nvml.driver import Load

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gauge(Generic[T]):
    """One series per value; a value that reads as None has none."""

    name: str
    text: str
    read: Callable[[T], float | None]


def tabulate(
    gauges: Iterable[Gauge[T]], labels: Sequence[str], rows: Sequence[tuple[Sequence[str], T]]
) -> Iterator[Metric]:
    """Every gauge over every row of label values and value."""
    for gauge in gauges:
        family = GaugeMetricFamily(gauge.name, gauge.text, labels=labels)
        for values, each in rows:
            number = gauge.read(each)
            if number is not None:
                family.add_metric(values, number)
        yield family


@dataclass(frozen=True, slots=True)
class _Page:
    metrics: tuple[Metric, ...]

    def collect(self) -> tuple[Metric, ...]:
        return self.metrics


def render(metrics: Iterable[Metric]) -> bytes:
    """The metrics in the text form that Prometheus reads."""
    return generate_latest(_Page(tuple(metrics)))


def of_load(read: Callable[[Load], float | None]) -> Callable[[GpuUsage], float | None]:
    """A number of the GPU's load; none while the GPU does not answer."""
    return lambda each: None if each.load is None else read(each.load)


_GPU_LABELS: Final = ("node", "gpu", "uuid")
_GPUS: Final[tuple[Gauge[GpuUsage], ...]] = (
    Gauge("slicewise_gpu_healthy", "Whether shares of the GPU may be allocated.",
          lambda each: float(each.device.gpu.usable)),
    Gauge("slicewise_gpu_memory_bytes", "Memory of the GPU.",
          lambda each: each.device.gpu.memory * BYTES_PER_MIB),
    Gauge("slicewise_gpu_memory_promised_bytes", "Memory of the GPU allocated to pods.",
          lambda each: each.memory * BYTES_PER_MIB),
    Gauge("slicewise_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes.",
          of_load(lambda load: load.memory * BYTES_PER_MIB)),
    Gauge("slicewise_gpu_promised_ratio", "Compute of the GPU allocated to pods; 1 is all of it.",
          lambda each: each.cores / 100),
    Gauge("slicewise_gpu_utilization_ratio",
          "Compute of the GPU in use, by all processes; 1 is all of it.",
          of_load(lambda load: load.cores / 100)),
    Gauge("slicewise_gpu_processes", "Processes on the GPU, of any owner.",
          of_load(lambda load: len(load.processes))),
    Gauge("slicewise_gpu_temperature_celsius", "Temperature of the GPU.",
          of_load(lambda load: load.temperature)),
    Gauge("slicewise_gpu_power_watts", "Power the GPU draws.", of_load(
          lambda load: None if load.power_milliwatts is None else load.power_milliwatts / 1000)),
)  # fmt: skip

_CONTAINER_LABELS: Final = ("node", "namespace", "pod", "container", "gpu", "uuid")
_CONTAINERS: Final[tuple[Gauge[HeldGpu], ...]] = (
    Gauge("slicewise_container_gpu_memory_promised_bytes",
          "Memory of the GPU allocated to the container; 0 where no amount was named.",
          lambda each: each.allocated.memory * BYTES_PER_MIB),
    Gauge("slicewise_container_gpu_memory_used_bytes", "Memory of the GPU that the container uses.",
          lambda each: each.memory * BYTES_PER_MIB if each.answers else None),
    Gauge("slicewise_container_gpu_promised_ratio",
          "Compute of the GPU allocated to the container; 0 for memory alone.",
          lambda each: each.allocated.cores / 100),
    Gauge("slicewise_container_gpu_utilization_ratio",
          "Compute of the GPU that the container uses; 1 is all of the GPU.",
          lambda each: each.cores / 100 if each.answers else None),
    Gauge("slicewise_container_gpu_processes", "Processes of the container on the GPU.",
          lambda each: len(each.pids) if each.answers else None),
)  # fmt: skip


def collect_own(usage: NodeUsage, tally: SamplingStats) -> Iterator[Metric]:
    """Every metric of the node under our own names."""
    yield _list_gpus(usage)
    gpus = [((usage.node, *_name(each)), each) for each in usage.gpus]
    yield from tabulate(_GPUS, _GPU_LABELS, gpus)
    held = [
        ((usage.node, each.pod.namespace, each.pod.name, each.container.name, *_name(on)), on)
        for each in usage.containers
        for on in each.gpus
    ]
    yield from tabulate(_CONTAINERS, _CONTAINER_LABELS, held)
    yield from _collect_strays(usage)
    yield _count_trespasses(usage)
    yield from _collect_sampling(usage, tally)


def _list_gpus(usage: NodeUsage) -> Metric:
    labels = (*_GPU_LABELS, "model", "minor", "bus")
    family = GaugeMetricFamily("slicewise_gpu_info", "The GPU itself; always 1.", labels=labels)
    for each in usage.gpus:
        gpu = each.device.gpu
        family.add_metric((usage.node, *_name(each), gpu.model, str(gpu.minor), each.device.bus), 1)
    return family


def _collect_strays(usage: NodeUsage) -> Iterator[Metric]:
    labels = (*_GPU_LABELS, "origin")
    text = "Processes on the GPU that belong to no pod known here, by where they run."
    counts = GaugeMetricFamily("slicewise_gpu_stray_processes", text, labels=labels)
    text = "Memory that these processes use."
    memory = GaugeMetricFamily("slicewise_gpu_stray_memory_bytes", text, labels=labels)
    sums: dict[tuple[int, str, str], tuple[int, int]] = {}
    for stray in usage.strays:
        key = (stray.gpu.index, stray.gpu.uuid, stray.origin.value)
        count, used = sums.get(key, (0, 0))
        sums[key] = (count + 1, used + stray.process.memory)
    for (index, uuid, origin), (count, used) in sorted(sums.items()):
        values = (usage.node, str(index), uuid, origin)
        counts.add_metric(values, count)
        memory.add_metric(values, used * BYTES_PER_MIB)
    yield counts
    yield memory


def _count_trespasses(usage: NodeUsage) -> Metric:
    family = GaugeMetricFamily(
        "slicewise_container_gpu_trespassing_processes",
        "Processes of the container on a GPU that it does not hold.",
        labels=_CONTAINER_LABELS,
    )
    counts: Counter[tuple[str, ...]] = Counter()
    for each in usage.trespasses:
        owner = (each.pod.namespace, each.pod.name, each.container or "")
        counts[usage.node, *owner, str(each.gpu.index), each.gpu.uuid] += 1
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _collect_sampling(usage: NodeUsage, tally: SamplingStats) -> Iterator[Metric]:
    if usage.at is not None:
        yield GaugeMetricFamily(
            "slicewise_usage_timestamp_seconds", "When usage was last read.", usage.at
        )
    yield GaugeMetricFamily(
        "slicewise_usage_sample_seconds", "How long the last reading took.", tally.last_seconds
    )
    for name, text, count in (
        ("samples", "Readings of usage taken.", tally.samples),
        ("failures", "Readings of usage that the driver refused.", tally.failures),
    ):
        yield CounterMetricFamily(f"slicewise_usage_{name}", text, count)


def _name(each: GpuUsage | HeldGpu) -> tuple[str, str]:
    return str(each.device.gpu.index), each.device.gpu.uuid
