"""How the agent works on its node, said on the Node itself, and the Node as it was last heard of.

The Node is followed, so that what somebody takes away is put back; nothing is written that is
there already.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from slicewise.kube.errors import KubeError
from slicewise.kube.nodepatch import NodePatch
from slicewise.kube.watch import Change, Seen
from slicewise.model import NodeNotice

_log = logging.getLogger(__name__)
AGENT: Final = "slicewise.io/agent"
_PAUSE_SECONDS: Final = 5.0


class NodeDoor(Protocol):
    """Who writes to the Node."""

    async def patch(self, patch: NodePatch) -> NodeNotice:
        """The Node after a change."""


class Announcer:
    """Keeps the Node saying how its agent works."""

    def __init__(self, door: NodeDoor, annotations: Callable[[], Mapping[str, str]]) -> None:
        self.notice: NodeNotice | None = None
        """The Node as it was last heard of."""
        self._door = door
        self._annotations = annotations
        self._due = asyncio.Event()

    def take(self, changes: Sequence[Change[NodeNotice]]) -> None:
        """Learn what the watch tells of the Node."""
        for change in changes:
            self.notice = change.value if isinstance(change, Seen) else None
        self._due.set()

    async def run(self) -> None:
        """Write whatever differs, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.look()
            except KubeError as error:
                _log.warning("node not annotated error=%s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                self._due.set()

    async def look(self) -> None:
        """Write what the Node lacks."""
        notice = self.notice
        if notice is None:
            return
        lacking: dict[str, str | None] = {
            key: value
            for key, value in self._annotations().items()
            if notice.annotations.get(key) != value
        }
        if lacking:
            await self._door.patch(NodePatch(annotations=lacking))
            _log.info("node annotated keys=%s", ",".join(lacking))
