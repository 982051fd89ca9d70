"""What gpu-manager's display socket answers: the pages of `manager_pages` as messages."""

from slicewise import __version__
from slicewise.kubelet.display_service import (
    ContainerEntry,
    DisplayedGpu,
    DisplayedGpus,
    DisplayedGraph,
    DisplayedPod,
    DisplayedRequest,
    DisplayedUsage,
    DisplayedVersion,
    DisplaySource,
    PodEntry,
    RequestEntry,
)
from slicewise.nodeagent.compat.manager_pages import (
    UsageDevices,
    UsageDocument,
    UsagePod,
    draw_graph,
    write_manager_usage,
)
from slicewise.nodeagent.usage.sampler import UsageMeter


def display(meter: UsageMeter) -> DisplaySource:
    """The same that `/graph`, `/usage` and `/version` show."""
    return DisplaySource(
        graph=lambda: DisplayedGraph(draw_graph(meter.usage(), meter.links())),
        usage=lambda: write_usage(write_manager_usage(meter.usage())),
        version=lambda: DisplayedVersion(__version__),
    )


def write_usage(document: UsageDocument) -> DisplayedUsage:
    """The page of usage as a message."""
    return DisplayedUsage(
        tuple(PodEntry(uid, _write_pod(pod)) for uid, pod in document.usage.items())
    )


def _write_pod(pod: UsagePod) -> DisplayedPod:
    return DisplayedPod(
        stat=tuple(ContainerEntry(name, _write_gpus(each)) for name, each in pod.stat.items()),
        project=pod.project,
        user=pod.user,
        cluster=pod.cluster,
        spec=tuple(
            RequestEntry(name, DisplayedRequest(each.gpu, each.mem))
            for name, each in pod.spec.items()
        ),
    )


def _write_gpus(devices: UsageDevices) -> DisplayedGpus:
    return DisplayedGpus(
        tuple(
            DisplayedGpu(
                each.id, each.card_idx, each.gpu, each.mem, tuple(each.pids), each.device_mem
            )
            for each in devices.dev
        )
    )
