"""What is in use, for the page: from the metrics API at once, or from agents where none runs.

Both are optional: a cluster without either shows what is allocated, and is asked again only now
and then.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from slicewise.kube.client import Client
from slicewise.model import NodeState
from slicewise.state.live import ClusterState
from slicewise.state.node_reports import (
    AGENT_PORT,
    AgentReportReader,
    ReportedNode,
    ReportIndex,
    ReportListReader,
    index_report,
)

# Through the API server's proxy, so that a large cluster is asked at an even and modest pace.
_AT_ONCE: Final = 200
_AGAIN: Final = 60.0
_LONGEST: Final = 600.0


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
        self,
        client: Client,
        state: ClusterState,
        port: int = AGENT_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._everything = ReportListReader(client, clock)
        self._agents = AgentReportReader(client, port)
        self._clock = clock
        self._answers: dict[str, ReportedNode] = {}
        self._due: dict[str, float] = {}
        self._pause: dict[str, float] = {}

    async def read(self) -> dict[str, MeasuredNode]:
        """Every node that is reported, as it last was."""
        if not self._state.ready:
            return {}
        reports = await self._everything.read()
        if reports is None:
            reports = await self._ask_agents()
        snapshot = self._state.snapshot()
        return {
            name: measure_node(state, reported)
            for name, reported in reports.items()
            if (state := snapshot.get(name)) is not None
        }

    async def _ask_agents(self) -> Mapping[str, ReportedNode]:
        now = self._clock()
        names = {state.node.name for state in self._state.snapshot() if state.node.gpus}
        for held in (self._answers, self._due, self._pause):
            for name in held.keys() - names:
                del held[name]
        due = sorted((self._due.get(name, -inf), name) for name in names)
        asked = [name for when, name in due[:_AT_ONCE] if when <= now]
        answers = await self._agents.read(asked)
        for name in asked:
            if name in answers:
                self._answers[name] = answers[name]
                self._due[name] = now
                self._pause.pop(name, None)
            else:
                self._answers.pop(name, None)
                pause = self._pause[name] = min(_LONGEST, 2 * self._pause.get(name, _AGAIN / 2))
                self._due[name] = now + pause
        return self._answers


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
