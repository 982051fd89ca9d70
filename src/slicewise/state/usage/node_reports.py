"""What agents report of their nodes: read from the metrics API, or from agents where none runs.

The metrics API answers for all nodes at once, and after the first time only with what changed.
Agents are asked one by one through the API server's node proxy.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.reads import read_page
from slicewise.reports import MeasuredUse, NodeReport
from slicewise.reports.listing import LIST_PATH, RESOURCE, SILENT, decode_list

AGENT_PORT: Final = 5678
_PAGE: Final = "/usage/gpus"
_AGENT_SECONDS: Final = 3.0
_AT_ONCE: Final = 32
_LIST_SECONDS: Final = 10.0
# Whoever may read nothing of a group is told 403 whether or not it is served.
_NOT_SERVED: Final = (403, 404, 503)
_ABSENT_SECONDS: Final = 10.0
_STALE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """The newest report of one node; that of a silent agent may be old."""

    report: NodeReport
    silent: bool = False


@dataclass(frozen=True, slots=True)
class ReportIndex:
    """What a report says is in use, by the indexes of its GPUs."""

    gpus: Mapping[int, MeasuredUse]
    containers: Mapping[tuple[str, str, int], MeasuredUse]
    """By a pod's UID, a container's name and a GPU's index."""
    loose: Mapping[int, Sequence[int]]
    """MiB of each process on a GPU that belongs to no container there."""
    why: Mapping[int, str]
    """Why a GPU is unhealthy."""


def index_report(reported: ReportedNode | None) -> ReportIndex:
    """What is in use by GPU; nothing where nobody reports or the agent is silent."""
    if reported is None or reported.silent:
        return ReportIndex({}, {}, {}, {})
    report = reported.report
    indexes = {gpu.uuid: gpu.index for gpu in report.gpus}
    loose: dict[int, list[int]] = {}
    for process in report.processes:
        if process.gpu in indexes:
            loose.setdefault(indexes[process.gpu], []).append(process.memory_mib)
    return ReportIndex(
        gpus={gpu.index: gpu.use for gpu in report.gpus if gpu.use is not None},
        containers={
            (pod.uid, container.name, indexes[device.gpu]): device.use
            for pod in report.pods
            for container in pod.containers
            for device in container.devices
            if device.use is not None and device.gpu in indexes
        },
        loose=loose,
        why={gpu.index: gpu.why for gpu in report.gpus if gpu.why},
    )


class ReportListReader:
    """Keeps every node's report as the metrics API has it."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._nodes: dict[str, ReportedNode] = {}
        self._version = ""
        self._read_at = 0.0
        self._absent_until = 0.0

    async def read(self) -> Mapping[str, ReportedNode] | None:
        """Every node as it was last reported; None where no metrics API answers us."""
        now = self._clock()
        if now < self._absent_until:
            return None
        query = {"since": self._version} if self._version else {}
        try:
            call = Call("list", RESOURCE, LIST_PATH, query)
            self._take(await self._client.read_once(call, seconds=_LIST_SECONDS))
        except (KubeError, ValueError, RecursionError) as error:
            fresh = bool(self._version) and now - self._read_at <= _STALE_SECONDS
            code = error.code if isinstance(error, RefusedError) else None
            # A restart or a lost answer is no reason to ask every agent while figures are fresh.
            if fresh and code not in (403, 404):
                return self._nodes
            self._nodes, self._version = {}, ""
            if code not in _NOT_SERVED:
                return self._nodes
            self._absent_until = now + _ABSENT_SECONDS
            return None
        self._read_at = now
        return self._nodes

    def _take(self, body: bytes) -> None:
        found = decode_list(body)
        if not found.since:
            self._nodes = {}
        for name in found.deleted:
            self._nodes.pop(name, None)
        for item in found.items:
            silent = item.status.agent == SILENT
            self._nodes[item.metadata.name] = ReportedNode(item.report, silent)
        self._version = found.metadata.resource_version


class AgentReportReader:
    """Asks agents through the API server; a node that does not answer is unknown, no error."""

    def __init__(self, client: Client, port: int = AGENT_PORT) -> None:
        self._client = client
        self._port = port
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, nodes: Iterable[str]) -> dict[str, ReportedNode]:
        """What the agents of these nodes say, as far as they answer."""
        names = list(nodes)
        found = await asyncio.gather(*(self._read_node(name) for name in names))
        return {
            name: ReportedNode(report)
            for name, report in zip(names, found, strict=True)
            if report is not None
        }

    async def _read_node(self, node: str) -> NodeReport | None:
        async with self._turns:
            try:
                client, port = self._client, self._port
                page = await read_page(client, node, port, _PAGE, seconds=_AGENT_SECONDS)
                return msgspec.json.decode(page, type=NodeReport)
            except (KubeError, ValueError, RecursionError):
                return None
