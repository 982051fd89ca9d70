"""Keeps nvidia-gpu-scheduler v0.2.0's GpuNode, GpuPods and Lease of this node, as gpuserver-ds.

An object is written when what it says has changed, the lease every two seconds. What is there is
listed again every minute, so that objects of pods that are gone, and objects that somebody
deleted, are put right.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import msgspec
import structlog

from slicewise.kube.client import Client
from slicewise.kube.custom.node_leases import renew_node_lease
from slicewise.kube.custom.objects import (
    API_VERSION,
    CustomBody,
    OwnerReference,
    find_node_owner,
    gpu_nodes,
    gpu_pods,
)
from slicewise.kube.errors import KubeError
from slicewise.reports import NodeReport
from slicewise.reports.gpu_documents import (
    NODE_LABEL,
    name_gpu_pod,
    write_node_spec,
    write_pod_spec,
    write_time,
)

_log = structlog.get_logger(__name__)
MANAGER: Final = "slicewise-agent"
RENEW_SECONDS: Final = 2.0
_JITTER: Final = 0.04
_LOOK_SECONDS: Final = 2.0
_RESYNC_SECONDS: Final = 60.0
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriterClock:
    """Where the writer's time comes from; tests move it by hand."""

    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time of day, which objects are written with."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """How to wait."""


class CustomResourceWriter:
    """Writes what the node's report says, and that the node lives."""

    def __init__(
        self,
        client: Client,
        node: str,
        namespace: str,
        *,
        time: WriterClock | None = None,
        chance: Random | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._nodes = gpu_nodes(client, namespace, manager=MANAGER)
        self._pods = gpu_pods(client, namespace, manager=MANAGER)
        self._time = time or WriterClock()
        self._chance = chance or Random()
        self._owner: OwnerReference | None = None
        self._gpu_node: OwnerReference | None = None
        self._node_said: Spec | None = None
        self._pods_said: dict[str, Spec] = {}
        self._listed_at: float | None = None
        self._problems: dict[str, str] = {}

    async def run(self, read: Callable[[], Awaitable[NodeReport]]) -> None:
        """Write until cancelled."""
        await asyncio.gather(self._keep_lease(), self._keep_objects(read))

    async def _keep_lease(self) -> None:
        while True:
            try:
                await self.renew()
                self._settle("lease")
            except KubeError as error:
                self._fail("lease", error)
            await self._time.sleep(RENEW_SECONDS * (1 + _JITTER * self._chance.random()))

    async def _keep_objects(self, read: Callable[[], Awaitable[NodeReport]]) -> None:
        while True:
            try:
                await self.write(await read())
                self._settle("objects")
            except KubeError as error:
                # What was carried out is not known, so everything is looked at again.
                self._listed_at = None
                self._fail("objects", error)
            await self._time.sleep(_LOOK_SECONDS)

    async def renew(self) -> None:
        """Say that the node lives."""
        owner = await self._find_owner()
        await renew_node_lease(
            self._client, owner, self._time.now(), manager=MANAGER, seconds=RENEW_SECONDS
        )

    async def write(self, report: NodeReport) -> None:
        """Have the objects say this, and no others of this node be there."""
        if self._listed_at is None or self._time.clock() - self._listed_at >= _RESYNC_SECONDS:
            await self._list()
        gpu_node = await self._write_node(report)
        wanted = {name_gpu_pod(pod): write_pod_spec(pod, report) for pod in report.pods}
        for name in self._pods_said.keys() - wanted.keys():
            await self._pods.delete(name)
            del self._pods_said[name]
        for name, spec in sorted(wanted.items()):
            plain = msgspec.to_builtins(spec)
            if self._pods_said.get(name) == plain:
                continue
            await self._pods.apply(name, gpu_node, plain, {NODE_LABEL: self._node})
            # The original wrote this with the object itself, where the server drops it.
            status = {"last_changed_time": write_time(self._time.now())}
            await self._pods.patch_status(name, status)
            self._pods_said[name] = plain

    async def _list(self) -> None:
        # A Node that was registered again is another owner.
        self._owner = None
        node = await self._nodes.read(self._node)
        if node is not None:
            self._gpu_node = self._refer(node)
        self._node_said = None if node is None else {**node.spec, "report_time": ""}
        found = await self._pods.list({NODE_LABEL: self._node})
        self._pods_said = {each.metadata.name: each.spec for each in found}
        self._listed_at = self._time.clock()

    async def _write_node(self, report: NodeReport) -> OwnerReference:
        plain = msgspec.to_builtins(write_node_spec(report, None))
        if self._gpu_node is not None and plain == self._node_said:
            return self._gpu_node
        reported = {**plain, "report_time": write_time(self._time.now())}
        owner = await self._find_owner()
        made = self._refer(await self._nodes.apply(self._node, owner, reported, {}))
        if made != self._gpu_node:
            # What belonged to an earlier one is deleted with it.
            self._pods_said = {name: {} for name in self._pods_said}
        self._node_said, self._gpu_node = plain, made
        return made

    def _refer(self, gpu_node: CustomBody) -> OwnerReference:
        return OwnerReference(API_VERSION, "GpuNode", self._node, gpu_node.metadata.uid)

    async def _find_owner(self) -> OwnerReference:
        if self._owner is None:
            self._owner = await find_node_owner(self._client, self._node)
        return self._owner

    def _settle(self, part: str) -> None:
        if self._problems.pop(part, None) is not None:
            _log.info("custom resources written again", part=part)

    def _fail(self, part: str, error: KubeError) -> None:
        if self._problems.get(part) != str(error):
            self._problems[part] = str(error)
            _log.warning("custom resources not written", part=part, error=str(error))
