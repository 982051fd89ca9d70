"""Keeps the node's ResourceSlice true, and there: the kubelet deletes it at times."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from slicewise.kube.dra.slices import GateOffError, SliceBody, SliceClient, SliceDevice
from slicewise.kube.errors import KubeError
from slicewise.kube.watch import Seen, WatchEvent

_log = structlog.get_logger(__name__)
# Gates are switched on by starting the API server again.
RETRY_SECONDS: Final = 30.0
# What pods hold changes often, and every scheduler reads every change of a slice.
PAUSE_SECONDS: Final = 1.0


class SlicePublisher:
    """Publishes the devices whenever they changed, or their slice did."""

    def __init__(
        self,
        api: SliceClient,
        devices: Callable[[], Sequence[SliceDevice] | None],
        *,
        obstacle: Callable[[], Awaitable[str | None]],
        changed: Callable[[], None] = lambda: None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Publish nothing while `obstacle` says why; tell when `problem` has changed."""
        self._api = api
        self._devices = devices
        self._obstacle = obstacle
        self._changed = changed
        self._retry_seconds = retry_seconds
        self._due = asyncio.Event()
        self._due.set()
        self._said: Sequence[SliceDevice] | None = None
        """What the slice says, as far as is known."""
        self._version = ""
        self._heard: set[str] = set()
        """The versions that were heard of since the last write began; empty is a deletion."""
        self.writes = 0
        """How often the slice was looked at or written."""
        self.problem: str | None = "the slice has not been published yet"
        """Why claims find no GPUs of this node; None when they do."""

    def wake(self) -> None:
        """Look soon whether the slice says what it should."""
        self._due.set()

    def slice_changed(self, changes: Sequence[WatchEvent[SliceBody]]) -> None:
        """Look again, unless it is our own write that is heard of."""
        versions = {
            each.value.metadata.resource_version if isinstance(each, Seen) else ""
            for each in changes
        }
        self._heard |= versions
        if versions - {self._version}:
            self._said = None
            self._due.set()

    async def run(self) -> None:
        """Publish until cancelled; the slice stays, and the kubelet removes it when it must."""
        while True:
            try:
                wait = None if self.problem is None else self._retry_seconds
                await asyncio.wait_for(self._due.wait(), wait)
            except TimeoutError:
                pass
            self._due.clear()
            before = self.writes
            await self.publish()
            if self.writes > before:
                await asyncio.sleep(PAUSE_SECONDS)

    async def publish(self) -> bool:
        """Whether claims can be allocated from the node's GPUs now."""
        try:
            obstacle = await self._obstacle()
            if obstacle is not None:
                if self._said != ():
                    await self._api.withdraw()
                self._said = ()
                return self._fail(obstacle)
            devices = self._devices()
            if devices is None:
                return self._fail("the GPUs are not known yet")
            if devices == self._said:
                return True
            self._said = None
            self._heard.clear()
            self.writes += 1
            found = await self._api.publish(devices)
        except (KubeError, GateOffError) as error:
            return self._fail(str(error))
        if self.problem is not None:
            _log.info("GPUs offered to claims", slice=found.metadata.name, gpus=len(devices))
        self._version = found.metadata.resource_version
        # Of our own write the watch may tell before its answer, and then of another's after it.
        self.problem, self._said = None, None if self._heard - {self._version} else devices
        self._changed()
        return True

    def _fail(self, problem: str) -> bool:
        if problem != self.problem:
            _log.warning("GPUs not offered to claims", reason=problem)
            self.problem = problem
            self._changed()
        return False
