"""Has the kubelet try again at once when it could not prepare a pod's claims.

A kubelet that fails to read a claim tries again only after a minute or more; any change of the
pod makes it try at once. So a pod that waits with claims of ours is touched after a second, and
again with backoff.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from slicewise.kube.errors import KubeError
from slicewise.kube.local_pods import LocalPod
from slicewise.model import Phase, Pod
from slicewise.model.claim import Claim

_log = structlog.get_logger(__name__)
NUDGED: Final = "slicewise.io/nudged"
LOOK_SECONDS: Final = 0.5
_FIRST_SECONDS: Final = 1.0
_MOST_NUDGES: Final = 6


@dataclass(slots=True)
class _Waiting:
    """A pod whose claims are not all prepared."""

    pod: LocalPod
    due: float
    nudges: int = 0
    claims: tuple[Claim, ...] | None = field(default=None)
    """Its claims with devices of ours; None while they were not read."""


class KubeletNudger:
    """Touches pods of the node whose claims the kubelet should have prepared by now."""

    def __init__(
        self,
        *,
        find: Callable[[str, str], Awaitable[Claim | None]],
        prepared: Callable[[str], bool],
        touch: Callable[[Pod], Awaitable[object]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read claims by `find`, know prepared ones by their UID, and touch a pod by a write."""
        self.nudges = 0
        self._find = find
        self._prepared = prepared
        self._touch = touch
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}

    def hear(self, found: LocalPod) -> None:
        """Take over how a pod is now."""
        uid = found.pod.uid
        waits = found.claims and found.pod.phase is Phase.PENDING and not found.pod.deleting
        if not waits:
            self._waiting.pop(uid, None)
        elif uid in self._waiting:
            self._waiting[uid].pod = found
        else:
            self._waiting[uid] = _Waiting(found, self._clock() + _FIRST_SECONDS)

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop pods that are gone."""
        self._waiting = {uid: each for uid, each in self._waiting.items() if living(uid)}

    def hurry(self) -> None:
        """The kubelet knows the driver from now on: what waited for that need not wait longer."""
        for each in self._waiting.values():
            each.due = self._clock()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Touch the pods that are due."""
        now = self._clock()
        for uid, each in tuple(self._waiting.items()):
            if each.due > now:
                continue
            try:
                await self._consider(uid, each)
            except KubeError as error:
                each.due = now + _FIRST_SECONDS
                _log.warning("kubelet not nudged", pod=_name(each.pod), error=str(error))

    async def _consider(self, uid: str, waiting: _Waiting) -> None:
        if waiting.claims is None:
            waiting.claims = await self._read(waiting.pod)
        if all(self._prepared(claim.uid) for claim in waiting.claims):
            self._waiting.pop(uid, None)
            return
        waiting.nudges += 1
        waiting.due = self._clock() + _FIRST_SECONDS * 2**waiting.nudges
        if waiting.nudges >= _MOST_NUDGES:
            self._waiting.pop(uid, None)
        await self._touch(waiting.pod.pod)
        self.nudges += 1
        _log.info("kubelet nudged", pod=_name(waiting.pod), times=waiting.nudges)

    async def _read(self, pod: LocalPod) -> tuple[Claim, ...]:
        found: Sequence[Claim | None] = [
            await self._find(pod.pod.namespace, name) for name in pod.claims
        ]
        return tuple(claim for claim in found if claim is not None and claim.devices)


def _name(pod: LocalPod) -> str:
    return f"{pod.pod.namespace}/{pod.pod.name}"
