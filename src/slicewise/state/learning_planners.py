"""The planners of a service, which share their tables and learn from the pods that arrive."""

import asyncio
from collections import Counter, OrderedDict
from types import MappingProxyType
from typing import Final

from slicewise.model import Request
from slicewise.placement import (
    NodeTables,
    Planner,
    PodShape,
    Workload,
    prepare_prices,
    read_policy,
    shape_of,
)

# Pods may name policies of their own.
_PLANNERS: Final = 8
_FIRST_ARRIVALS: Final = 50
_SHAPES: Final = 2048


class WorkloadStats:
    """What pods of this cluster ask for, counted as they arrive, for the planners.

    It is renewed whenever the number of arrivals has doubled, because every planner then computes
    its price tables again.
    """

    def __init__(self) -> None:
        self.workload = Workload()
        """The statistics of the last renewal."""
        self.arrivals = 0
        """How many pods have arrived."""
        self._kinds: Counter[PodShape] = Counter()
        self._next = _FIRST_ARRIVALS

    def count(self, request: Request) -> bool:
        """Count one more pod; true when the statistics were renewed."""
        self._kinds[shape_of(request)] += 1
        self.arrivals += 1
        if len(self._kinds) > _SHAPES:
            # Rare shapes never reach the statistics, and must not pile up over the years.
            self._kinds = Counter(dict(self._kinds.most_common(_SHAPES // 2)))
        if self.arrivals < self._next:
            return False
        self._next *= 2
        self.workload = Workload(MappingProxyType(dict(self._kinds)))
        return True


class LearningPlanners:
    """Planners by the policy's name, all of which know the pods of late."""

    def __init__(self, policy: str) -> None:
        self.stats = WorkloadStats()
        self.tables = NodeTables()
        """What the planners share."""
        self._policy = policy
        self._workload = self.stats.workload
        self._planners: OrderedDict[str, Planner] = OrderedDict()
        # Its tables follow one node at a time, so it shares them with no other planner.
        self.lone = Planner(read_policy(policy), self._workload)
        """Chooses GPUs on one node at a time."""
        self._renewing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._planners)

    def find(self, policy: str | None = None) -> Planner:
        """The planner of this policy, or of the service's own."""
        name = policy or self._policy
        planner = self._planners.get(name)
        if planner is None:
            planner = Planner(read_policy(name), self._workload, tables=self.tables)
            self._planners[name] = planner
            if len(self._planners) > _PLANNERS:
                self._planners.popitem(last=False)
        self._planners.move_to_end(name)
        return planner

    def count(self, request: Request) -> None:
        """Learn of one more pod."""
        if self.stats.count(request) and self._renewing is None:
            self._renewing = asyncio.create_task(self.renew())

    async def renew(self) -> None:
        """Let planners know the pods of late, once what takes long is worked out on a thread."""
        while self._workload is not (workload := self.stats.workload):
            await asyncio.to_thread(prepare_prices, workload, tuple(self.tables.sizes))
            self._workload = workload
            for planner in (*self._planners.values(), self.lone):
                planner.workload = workload
        self._renewing = None
