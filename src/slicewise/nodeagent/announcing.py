"""What stands on the Node: amounts that no device plugin carries, and how the agent works there.

The Node is followed, so that what somebody takes away, such as a kubelet that starts without its
notes, is put back; nothing is written that is there already.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from slicewise.kube.errors import KubeError
from slicewise.kube.watch import Change, Seen
from slicewise.model import NodeNotice, QuantityError, read_count

_log = logging.getLogger(__name__)
AGENT: Final = "slicewise.io/agent"
_PAUSE_SECONDS: Final = 5.0


class NodeWriter(Protocol):
    """Who writes to the Node."""

    async def annotate(
        self, annotations: Mapping[str, str | None], labels: Mapping[str, str | None] | None = None
    ) -> None:
        """Set annotations and labels."""

    async def set_amounts(self, amounts: Mapping[str, int]) -> None:
        """The node has so many of each of these resources."""


class Announcer:
    """Keeps the Node saying what it should."""

    def __init__(
        self,
        writer: NodeWriter,
        *,
        amounts: Callable[[], Mapping[str, int]],
        annotations: Callable[[], Mapping[str, str]],
    ) -> None:
        self.notice: NodeNotice | None = None
        """The Node as it was last heard of."""
        self._writer = writer
        self._amounts = amounts
        self._annotations = annotations
        self._due = asyncio.Event()

    def take(self, changes: Sequence[Change[NodeNotice]]) -> None:
        """Learn what the watch tells of the Node."""
        for change in changes:
            self.notice = change.value if isinstance(change, Seen) else None
        self.wake()

    def wake(self) -> None:
        """Something may have to be written."""
        self._due.set()

    async def run(self) -> None:
        """Write whatever differs, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.look()
            except KubeError as error:
                _log.warning("node not written error=%s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                self.wake()

    async def look(self) -> None:
        """Write what the Node lacks."""
        notice = self.notice
        if notice is None:
            return
        amounts = {
            name: amount
            for name, amount in self._amounts().items()
            if not _has(notice, name, amount)
        }
        if amounts:
            await self._writer.set_amounts(amounts)
            _log.info("amounts written amounts=%s", amounts)
        annotations = {
            key: value
            for key, value in self._annotations().items()
            if notice.annotations.get(key) != value
        }
        if annotations:
            await self._writer.annotate(annotations)
            _log.info("node annotated keys=%s", ",".join(annotations))


def _has(notice: NodeNotice, name: str, amount: int) -> bool:
    try:
        return all(
            name in given and read_count(name, given[name]) == amount
            for given in (notice.capacity, notice.allocatable)
        )
    except QuantityError:
        return False
