"""What agents report, told to the ledger where the API server says nothing of it.

NVIDIA's device plugin publishes how many GPUs a node has, not which; the kubelet chooses GPUs
and writes that nowhere. The agent on the node knows both.
"""

import asyncio
from dataclasses import replace
from typing import Final

from slicewise.dialects.gpuscheduler.pods import GPU
from slicewise.dialects.shared.inventory import GPUS, read_gpu_count, write_gpus
from slicewise.dialects.shared.records import ALLOCATION, write_full_record
from slicewise.metricsapi.api_versions import NODES, PODS, PodObject
from slicewise.metricsapi.broadcaster import Broadcaster
from slicewise.metricsapi.registry import AgentHealth, NodeRecord, NodeRegistry
from slicewise.model import (
    FULL,
    Allocation,
    ContainerAllocation,
    Gpu,
    MiB,
    Node,
    NodeNotice,
    Pod,
    Slice,
    SlicewiseError,
)
from slicewise.reports import ContainerReport, GpuReport
from slicewise.state.live import LiveState

# A GPU must have a size; one of unknown size can then hold no memory request.
_UNKNOWN: Final = MiB(1)


class ReportOverlay:
    """Completes nodes that publish a mere count, and pods whose GPUs no record names."""

    def __init__(self, registry: NodeRegistry) -> None:
        self._registry = registry

    def complete_node(self, notice: NodeNotice) -> NodeNotice:
        """The notice with the GPUs its agent reports; a silent node's are unhealthy."""
        node_record = self._registry.records.get(notice.name)
        if node_record is None or GPUS in notice.annotations or GPU not in notice.capacity:
            return notice
        node = read_reported_node(node_record)
        # More devices than GPUs are replicas, whose pods share GPUs in the plugin's own way.
        if node is None or _count(notice) != len(node.gpus):
            return notice
        return replace(notice, annotations={**notice.annotations, GPUS: write_gpus(node)})

    def complete_pod(self, pod: Pod) -> Pod:
        """The pod with the whole GPUs that the kubelet gave it, as its agent reports them."""
        node_record = None if pod.node is None else self._registry.records.get(pod.node)
        if node_record is None or ALLOCATION in pod.annotations:
            return pod
        held = node_record.pods.get(f"{pod.namespace}/{pod.name}")
        node = read_reported_node(node_record)
        if held is None or node is None or held.pod.uid not in ("", pod.uid):
            return pod
        asking = {each.name for each in pod.containers if GPU in each.limits}
        told = [each for each in held.pod.containers if each.name in asking]
        allocation = Allocation(node.name, tuple(_allot(each, node) for each in told))
        shared = any(device.id not in ("", device.gpu) for c in told for device in c.devices)
        if shared or not asking or {each.name for each in told} != asking:
            return pod
        record = write_full_record(allocation, node)
        return replace(pod, annotations={**pod.annotations, ALLOCATION: record})


async def follow_reports(broadcaster: Broadcaster, state: LiveState) -> None:
    """Have the ledger reread every node whose agent reported something new."""
    await asyncio.gather(_follow(broadcaster, state, NODES), _follow(broadcaster, state, PODS))


async def _follow(broadcaster: Broadcaster, state: LiveState, subject: str) -> None:
    watcher = broadcaster.make_watcher()
    broadcaster.subscribe(subject, watcher)
    try:
        while True:
            objects = [event.item for event in await watcher.take()]
            if watcher.overrun.is_set():
                broadcaster.unsubscribe(subject, watcher)
                watcher = broadcaster.make_watcher()
                broadcaster.subscribe(subject, watcher)
                names = set(state.snapshot().slots)
            else:
                names = {
                    item.held.node if isinstance(item, PodObject) else item.name for item in objects
                }
            for name in sorted(names):
                state.reread_node(name)
    finally:
        broadcaster.unsubscribe(subject, watcher)


def read_reported_node(node_record: NodeRecord) -> Node | None:
    """The node as its agent reports it; None when that has no GPUs or cannot be."""
    if not node_record.report.gpus:
        return None
    heard = node_record.health is not AgentHealth.SILENT
    gpus = sorted(node_record.report.gpus, key=lambda gpu: gpu.index)
    try:
        return Node(node_record.name, tuple(_read_gpu(gpu, heard=heard) for gpu in gpus))
    except SlicewiseError:
        return None


def _count(notice: NodeNotice) -> int:
    try:
        return read_gpu_count(notice, GPU)
    except SlicewiseError:
        return 0


def _read_gpu(gpu: GpuReport, *, heard: bool) -> Gpu:
    memory = MiB(gpu.memory_mib) or _UNKNOWN
    return Gpu(gpu.index, gpu.uuid, gpu.model, memory, gpu.index, healthy=gpu.healthy and heard)


def _allot(container: ContainerReport, node: Node) -> ContainerAllocation:
    held = {device.gpu for device in container.devices}
    slices = tuple(Slice(gpu.index, FULL, gpu.memory) for gpu in node.gpus if gpu.uuid in held)
    return ContainerAllocation(container.name, slices)
