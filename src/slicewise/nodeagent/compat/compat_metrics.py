"""What Prometheus reads under the names that users' dashboards already have.

gpu-manager's four families and those of elastic's exporter, with their labels and units.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from slicewise.model import FULL
from slicewise.nodeagent.usage.metrics import Gauge, of_load, tabulate
from slicewise.nodeagent.usage.node_usage import ContainerUsage, GpuUsage, NodeUsage

_TOTAL: Final = "total"
_COMMON: Final = ("pod_name", "namespace", "node", "container_name", "container_id")
_GIB: Final = 1024


def collect_manager(usage: NodeUsage) -> Iterator[Metric]:
    """gpu-manager's families: what each container uses per GPU and in all, and asked for."""
    cores = _family("container_gpu_utilization", "gpu", "Percent of compute in use.")
    memory = _family("container_gpu_memory_total", "gpu_memory", "MiB of memory in use.")
    wanted = _family("container_request_gpu_utilization", "req_of_gpu", "GPUs asked for.")
    amount = _family("container_request_gpu_memory", "req_of_gpu_memory", "MiB asked for.")
    for each in usage.containers:
        common = _common(usage, each)
        known = [held for held in each.gpus if held.answers]
        for held in known:
            label = f"gpu{held.allocated.gpu}"
            cores.add_metric((*common, label), held.cores)
            memory.add_metric((*common, label), held.memory)
        if known:
            cores.add_metric((*common, _TOTAL), each.cores)
            memory.add_metric((*common, _TOTAL), each.memory)
        wanted.add_metric((*common, _TOTAL), each.allocated_cores / FULL)
        amount.add_metric((*common, _TOTAL), each.allocated_memory)
    yield from (cores, memory, wanted, amount)


def collect_exporter(usage: NodeUsage) -> Iterator[Metric]:
    """The families of elastic's exporter: per GPU, per pod and per container."""
    gpus = [((usage.node, str(each.device.gpu.index)), each) for each in usage.gpus]
    yield from tabulate(_GPUS, ("node", "card"), gpus)
    yield from tabulate(_PODS, ("node", "namespace", "pod"), list(_sum_pods(usage)))
    containers = [
        ((*_pod_labels(usage, each), each.container.name), _sum((each,), usage))
        for each in usage.containers
        if each.gpus
    ]
    yield from tabulate(_CONTAINERS, ("node", "namespace", "pod", "container"), containers)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What a pod or container uses and was allocated; `known` when one of its GPUs answers."""

    known: bool
    cores: int
    memory: int
    allocated_cores: int
    allocated_memory: int
    node_cores: int
    node_memory: int


def _if_known(read: Callable[[_Sums], float]) -> Callable[[_Sums], float | None]:
    return lambda each: read(each) if each.known else None


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


_used_cores = _if_known(lambda each: each.cores)
_used_memory = _if_known(lambda each: each.memory)
_cores_of_request = _if_known(lambda each: _percent(each.cores, each.allocated_cores))
_memory_of_request = _if_known(lambda each: _percent(each.memory, each.allocated_memory))


def _open_cores(each: GpuUsage) -> int:
    return FULL if each.device.gpu.usable else 0


def _open_memory(each: GpuUsage) -> int:
    return each.device.gpu.memory if each.device.gpu.usable else 0


_GPUS: Final[tuple[Gauge[GpuUsage], ...]] = (
    Gauge("gpu_core_usage", "Percent of the GPU's compute in use.",
          of_load(lambda load: load.cores)),
    Gauge("gpu_mem_usage", "MiB of the GPU's memory in use.", of_load(lambda load: load.memory)),
    Gauge("gpu_core_utilization_percentage", "Percent of the GPU's compute in use.",
          of_load(lambda load: load.cores)),
    Gauge("gpu_mem_utilization_percentage", "Percent of the GPU's memory in use.",
          lambda each: _percent(each.load.memory, each.device.gpu.memory) if each.load else None),
    Gauge("gpu_core_allocatable", "Percent of the GPU's compute that may be allocated.",
          _open_cores),
    Gauge("gpu_core_allocated", "Percent of the GPU's compute that is allocated.",
          lambda each: each.cores),
    Gauge("gpu_core_available", "Percent of the GPU's compute that is not allocated.",
          lambda each: max(_open_cores(each) - each.cores, 0)),
    Gauge("gpu_mem_allocatable", "GiB of the GPU's memory that may be allocated.",
          lambda each: _open_memory(each) / _GIB),
    Gauge("gpu_mem_allocated", "GiB of the GPU's memory that is allocated.",
          lambda each: each.memory / _GIB),
    Gauge("gpu_mem_available", "GiB of the GPU's memory that is not allocated.",
          lambda each: max(_open_memory(each) - each.memory, 0) / _GIB),
)  # fmt: skip

_PODS: Final[tuple[Gauge[_Sums], ...]] = (
    Gauge("pod_core_usage", "Percent of compute the pod uses.", _used_cores),
    Gauge("pod_mem_usage", "MiB of memory the pod uses.", _used_memory),
    Gauge("pod_core_utilization_percentage", "Percent of the pod's request in use.",
          _cores_of_request),
    Gauge("pod_mem_utilization_percentage", "Percent of the pod's request in use.",
          _memory_of_request),
    Gauge("pod_core_occupy_node_percentage", "Percent of the node's compute that the pod uses.",
          _if_known(lambda each: _percent(each.cores, each.node_cores))),
    Gauge("pod_mem_occupy_node_percentage", "Percent of the node's memory that the pod uses.",
          _if_known(lambda each: _percent(each.memory, each.node_memory))),
    Gauge("pod_core_request", "Percent of compute asked for.", lambda each: each.allocated_cores),
    Gauge("pod_mem_request", "MiB of memory asked for.", lambda each: each.allocated_memory),
)  # fmt: skip

_CONTAINERS: Final[tuple[Gauge[_Sums], ...]] = (
    Gauge("container_core_usage", "Percent of compute in use.", _used_cores),
    Gauge("container_mem_usage", "MiB of memory in use.", _used_memory),
    Gauge("container_core_utilization_percentage", "Percent of the request in use.",
          _cores_of_request),
    Gauge("container_mem_utilization_percentage", "Percent of the request in use.",
          _memory_of_request),
)  # fmt: skip


def _sum_pods(usage: NodeUsage) -> Iterator[tuple[Sequence[str], _Sums]]:
    pods: dict[str, list[ContainerUsage]] = {}
    for each in usage.containers:
        pods.setdefault(each.pod.uid, []).append(each)
    for containers in pods.values():
        if any(each.gpus for each in containers):
            yield _pod_labels(usage, containers[0]), _sum(containers, usage)


def _sum(containers: Sequence[ContainerUsage], usage: NodeUsage) -> _Sums:
    return _Sums(
        known=any(held.answers for each in containers for held in each.gpus),
        cores=sum(each.cores for each in containers),
        memory=sum(each.memory for each in containers),
        allocated_cores=sum(each.allocated_cores for each in containers),
        allocated_memory=sum(each.allocated_memory for each in containers),
        node_cores=FULL * len(usage.gpus),
        node_memory=sum(each.device.gpu.memory for each in usage.gpus),
    )


def _family(name: str, label: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(*_COMMON, label))


def _common(usage: NodeUsage, each: ContainerUsage) -> tuple[str, ...]:
    pod, container = each.pod, each.container
    return (pod.name, pod.namespace, usage.node, container.name, container.id or "")


def _pod_labels(usage: NodeUsage, each: ContainerUsage) -> tuple[str, str, str]:
    return (usage.node, each.pod.namespace, each.pod.name)
