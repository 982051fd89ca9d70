"""What is in use, for the page: from the metrics API, for all nodes at once.

A cluster without one shows what is allocated. Agents are not asked through the API server: the
right to reach them that way also runs code in every pod of their nodes.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from slicewise.kube.client import Client
from slicewise.model import NodeState
from slicewise.state.cluster_state import ClusterState
from slicewise.state.usage.node_reports import (
    ReportedNode,
    ReportIndex,
    ReportListReader,
    index_report,
)


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """What is in use of one GPU, by its UUID."""

    uuid: str
    cores: int | None
    """Percent of the compute; none where that was not measured."""
    memory: int | None
    """MiB; none where that was not measured."""


@dataclass(frozen=True, slots=True)
class MeasuredPod:
    pod: str
    """As people write it: `namespace/name`."""
    uuid: str
    cores: int | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """What is in use on one node, as far as that is known."""

    gpus: tuple[MeasuredGpu, ...] = ()
    pods: tuple[MeasuredPod, ...] = ()
    silent: bool = False
    """Whether its agent was heard once and is heard no more."""
    sampled_at: float | None = None
    """When this was measured, in seconds since the epoch."""


class UsageSource(Protocol):
    """Where measurements come from."""

    @property
    def label(self) -> str:
        """What the page calls them, such as `measured` or `simulated`."""

    async def read(self) -> Mapping[str, MeasuredNode] | None:
        """Every node's use by its name; None when nothing is measured."""


def write_usage(name: str, use: MeasuredNode, positions: Mapping[str, int]) -> list[object]:
    """Node, percent and MiB by GPU position, and the same by pod."""
    at = positions
    gpus = [[at[each.uuid], each.cores, each.memory] for each in use.gpus if each.uuid in at]
    pods = [
        [each.pod, at[each.uuid], each.cores, each.memory] for each in use.pods if each.uuid in at
    ]
    return [name, gpus, pods]


class ReportedUsage:
    """Use as the nodes' agents report it, and which of them are silent."""

    label = "measured"

    def __init__(
        self, client: Client, state: ClusterState, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._state = state
        self._reports = ReportListReader(client, clock)

    async def read(self) -> dict[str, MeasuredNode]:
        """Every node that is reported, as it last was."""
        if not self._state.ready:
            return {}
        reports = await self._reports.read() or {}
        snapshot = self._state.snapshot()
        return {
            name: measure_node(state, reported)
            for name, reported in reports.items()
            if (state := snapshot.get(name)) is not None
        }


def measure_node(state: NodeState, reported: ReportedNode) -> MeasuredNode:
    """What is in use on one node, by the UUIDs the page knows; nothing of a silent one."""
    index = index_report(reported)
    uuids = {gpu.index: gpu.uuid for gpu in state.node.gpus}
    gpus = tuple(
        MeasuredGpu(uuids[at], use.cores, use.memory_mib)
        for at, use in sorted(index.gpus.items())
        if at in uuids
    )
    pods = tuple(_measure_pods(state, index, uuids))
    return MeasuredNode(gpus, pods, reported.silent, reported.report.sampled_at)


def _measure_pods(
    state: NodeState, index: ReportIndex, uuids: Mapping[int, str]
) -> Iterator[MeasuredPod]:
    """What each pod uses of each GPU, its containers together."""
    names = {each.uid: each.pod for each in state.holdings}
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for (uid, _, gpu), use in index.containers.items():
        cores, memory = sums.get((uid, gpu), (0, 0))
        sums[uid, gpu] = (cores + use.cores, memory + use.memory_mib)
    for (uid, gpu), (cores, memory) in sorted(sums.items()):
        if uid in names and gpu in uuids:
            yield MeasuredPod(names[uid], uuids[gpu], cores, memory)
