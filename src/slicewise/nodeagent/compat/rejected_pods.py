"""Removal of pods that the kubelet did not admit, as gpu-manager removes them.

A pod that ended in UnexpectedAdmissionError never starts again: its controller makes another one,
and the old one stays as Failed until somebody deletes it. Pods without a controller are left for
their owner to see.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from slicewise.dialects import Dialects
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError, RefusedError
from slicewise.kube.objects import Metadata, ObjectReader, PodBody, PodStatus
from slicewise.kube.reads import list_all
from slicewise.kube.sources import by_uid
from slicewise.kube.watch import WatchSource
from slicewise.model import Pod, SlicewiseError

_log = structlog.get_logger(__name__)
REASON: Final = "UnexpectedAdmissionError"
# Without a pod that has left, so many periods pass before the next look.
_QUIET_PERIODS: Final = 20


class OwnerReference(msgspec.Struct, gc=False):
    controller: bool | None = None


class OwnedMetadata(Metadata, rename="camel", gc=False):
    owner_references: list[OwnerReference] | None = None


class EndedStatus(PodStatus, gc=False):
    reason: str = ""


class EndedPodBody(PodBody, gc=False):
    """A pod with what says why it ended, and who would make another one."""

    metadata: OwnedMetadata
    status: EndedStatus = msgspec.field(default_factory=EndedStatus)

    @property
    def owned(self) -> bool:
        return any(each.controller for each in self.metadata.owner_references or ())


class RejectedPods:
    """Deletes the pods of one node that were not admitted, ask for GPUs and have a controller."""

    def __init__(self, client: Client, node: str, dialects: Dialects, reader: ObjectReader) -> None:
        self._client = client
        self._node = node
        self._dialects = dialects
        self._reader = reader
        self._refusal = ""

    async def run(
        self,
        departed: asyncio.Event,
        seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Look when a pod has left the node's list, at most once in so many seconds."""
        while True:
            await self.try_remove()
            await sleep(seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(departed.wait(), seconds * _QUIET_PERIODS)
            departed.clear()

    async def try_remove(self) -> None:
        """Delete what is to be deleted, or log once why it cannot be."""
        try:
            await self.remove()
        except KubeError as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                _log.warning("rejected pods not removed", error=self._refusal)
        else:
            self._refusal = ""

    async def remove(self) -> int:
        """How many pods were deleted."""
        removed = 0
        for pod in await list_all(self._client, self._source()):
            if pod is not None and self._asks(pod):
                removed += await self._delete(pod)
        return removed

    def _source(self) -> WatchSource[EndedPodBody, Pod | None]:
        ended = f"spec.nodeName={self._node},status.phase=Failed"
        return WatchSource(
            resource="pods",
            kind="Pod",
            path="/api/v1/pods",
            body=EndedPodBody,
            read=self._read,
            key=by_uid,
            query={"fieldSelector": ended},
        )

    def _read(self, body: EndedPodBody) -> Pod | None:
        leaving = body.metadata.deletion_timestamp is not None
        if body.status.reason != REASON or not body.owned or leaving:
            return None
        return self._reader.read_pod(body)

    def _asks(self, pod: Pod) -> bool:
        try:
            return self._dialects.claim(pod) is not None
        except SlicewiseError:
            # It asks, in a way that no dialect can read.
            return True

    async def _delete(self, pod: Pod) -> bool:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        # Another pod of that name is nobody's business here.
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": pod.uid},
        }
        try:
            await self._client.send(Call("delete", "pods", path), options)
        except RefusedError as error:
            if error.missing or error.code == 409:
                return False
            raise
        _log.info("rejected pod removed", pod=f"{pod.namespace}/{pod.name}", reason=REASON)
        return True
