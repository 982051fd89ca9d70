"""Reads the driver and /proc at a fixed interval, and keeps the newest reading.

What is joined with it is decided when somebody asks: a container's series begin with its
allocation and end with the container, whatever the pace.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from slicewise.model import Links
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.node_usage import NodeUsage, UsageSample, measure
from slicewise.nvml.driver import Driver, DriverError

_log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 5.0
_STALE_AFTER: Final = 3


@dataclass(slots=True)
class SamplingStats:
    samples: int = 0
    failures: int = 0
    last_seconds: float = 0.0


class UsageSampler:
    """Keeps the newest reading; one that is three intervals old counts as none."""

    def __init__(
        self,
        driver: Driver,
        processes: ProcessTable,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._processes = processes
        self._interval = interval_seconds
        self._clock = clock
        self._reading: UsageSample | None = None
        self._taken = 0.0
        self._failing = False
        self.tally = SamplingStats()

    def reading(self) -> UsageSample | None:
        """The newest reading, unless it is stale."""
        if self._clock() - self._taken > _STALE_AFTER * self._interval:
            return None
        return self._reading

    def sample(self) -> bool:
        """Take a reading; when the driver fails, the last one is kept until it is stale."""
        started = self._clock()
        try:
            loads = self._driver.loads()
        except DriverError as error:
            self.tally.failures += 1
            if not self._failing:
                self._failing = True
                _log.warning("usage unknown", error=str(error))
            return False
        pids = {process.pid for load in loads.values() for process in load.processes}
        self._reading = UsageSample(loads, self._processes.look(pids), time.time())
        self._taken = self._clock()
        self.tally.samples += 1
        self.tally.last_seconds = self._taken - started
        if self._failing:
            self._failing = False
            _log.info("usage known again")
        return True

    async def run(self) -> None:
        """Sample until cancelled, off the event loop, for a driver may be slow."""
        while True:
            await asyncio.to_thread(self.sample)
            await asyncio.sleep(self._interval)


class UsageMeter:
    """The node's usage as of now: the newest reading, joined with the pods there are."""

    def __init__(self, pods: NodePods, sampler: UsageSampler) -> None:
        self._pods = pods
        self._sampler = sampler

    @property
    def tally(self) -> SamplingStats:
        return self._sampler.tally

    def usage(self) -> NodeUsage:
        """Who uses how much of which GPU."""
        pods = self._pods
        return measure(pods.node, pods.gpus(), pods.pods(), self._sampler.reading())

    def links(self) -> Links | None:
        return self._pods.links()
