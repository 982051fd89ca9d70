"""Measured load for the extender's decisions: read from the metrics API, every few seconds."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from slicewise.model import Snapshot
from slicewise.state.usage.measured_load import MeasuredLoad
from slicewise.state.usage.node_reports import ReportedNode

PAUSE_SECONDS: Final = 5.0


class ReportList(Protocol):
    """Where agents' reports come from."""

    async def read(self) -> Mapping[str, ReportedNode] | None:
        """Every node as it was last reported; None where no metrics API answers us."""


class LoadTaker(Protocol):
    """Who decides by load."""

    def snapshot(self) -> Snapshot:
        """The cluster now."""

    def take_load(self, load: Mapping[str, Sequence[int]]) -> None:
        """Decide by this load from now on."""


class LoadReader:
    """Reads reports while it runs, and hands the smoothed load to the state."""

    def __init__(
        self,
        source: ReportList,
        state: LoadTaker,
        clock: Callable[[], float] = time.monotonic,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._source = source
        self._state = state
        self._load = MeasuredLoad(clock)
        self._pause = pause_seconds

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._pause)

    async def look(self) -> None:
        """Read once; nothing that is reported may end the extender."""
        reported = await self._source.read()
        self._state.take_load(self._load.take(reported, self._state.snapshot()))
