"""Everything of the agent that has to do with limits, built together."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicewise.nodeagent.agent import Agent
from slicewise.nodeagent.limits.container_limits import LimitInjector, VcudaProbe
from slicewise.nodeagent.limits.detector import LimitDetector, LimitWatch
from slicewise.nodeagent.limits.driver_limits import DriverLimits, FindOwner, MemoryLimiter
from slicewise.nodeagent.limits.feed import LimitFeed
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise.nodeagent.limits.limit_metrics import LimitMetrics
from slicewise.nodeagent.limits.limiter_library import LimiterLibrary
from slicewise.nodeagent.limits.tiers import TierDetector, TierSettings
from slicewise.nodeagent.settings import AgentSettings
from slicewise.nodeagent.usage.node_usage import NodeUsage
from slicewise.nvml.driver import Driver

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LimitServices:
    """What grants, feeds and watches limits on a node."""

    injector: LimitInjector
    tiers: TierDetector
    feed: LimitFeed
    detector: LimitDetector

    @classmethod
    def build(cls, settings: AgentSettings, driver: Driver) -> "LimitServices":
        """With the library on the host, if there is one; blocks on the disk."""
        paths = settings.paths
        library = LimiterLibrary(paths.limiter, paths.state / "limiter")
        folders = LimitFolders(paths.limits)
        if library.install() is not None:
            folders.mount()
        vcuda = VcudaProbe(Path(settings.places.drivers))
        limits = settings.limits
        feed = LimitFeed(folders, driver, rounding=limits.rounding)
        limiter = driver if isinstance(driver, MemoryLimiter) else None
        tested = limits.driver_tested
        by_driver = DriverLimits(limiter, paths.cgroups) if tested and limiter else None
        tiers = TierSettings(paths.mps_pipe, tested, paths.cgroups)
        return cls(
            LimitInjector(folders, library, vcuda, paths.mps_pipe, by_driver, limits),
            TierDetector(library, tiers, vcuda=vcuda, limiter=limiter),
            feed,
            LimitDetector(feed, vcuda),
        )

    def metrics(self, usage: Callable[[], NodeUsage]) -> LimitMetrics:
        return LimitMetrics(usage, lambda: self.feed.limited, self.detector)

    def work(
        self, agent: Agent, usage: Callable[[], NodeUsage], find_owner: FindOwner
    ) -> list[Coroutine[Any, Any, None]]:
        """What runs for as long as the agent does."""
        watch = LimitWatch(self.detector, usage, agent.find_pod, agent.events.post)
        work = [self.feed.run(), watch.run(min(_LOOK_SECONDS, agent.settings.sample_seconds))]
        if self.injector.driver is not None:
            kept = self.injector.driver.run(
                agent.pods.pods, lambda: agent.inventory.node.gpus, find_owner
            )
            work.append(kept)
        return work
