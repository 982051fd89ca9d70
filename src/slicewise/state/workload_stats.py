"""Learning what pods of this cluster tend to ask for, from those that arrive.

A lesson is drawn whenever the number of arrivals has doubled: early often, later seldom, for
each lesson makes every planner work out its prices anew.
"""

from collections import Counter
from types import MappingProxyType
from typing import Final

from slicewise.model import Request
from slicewise.placement import PodShape, Workload, shape_of

_FIRST: Final = 50
_KINDS: Final = 4096


class WorkloadStats:
    """Counts the kinds of arriving pods, and says what they teach."""

    def __init__(self) -> None:
        self.workload = Workload()
        """What was learned last."""
        self.arrivals = 0
        """How many pods have arrived."""
        self._kinds: Counter[PodShape] = Counter()
        self._next = _FIRST

    def count(self, request: Request) -> bool:
        """Take in one more pod; true when that taught something new."""
        self._kinds[shape_of(request)] += 1
        self.arrivals += 1
        if self.arrivals < self._next:
            return False
        self._next *= 2
        if len(self._kinds) > _KINDS:
            # Rare shapes never reach the statistics, and must not pile up over the years.
            self._kinds = Counter(dict(self._kinds.most_common(_KINDS // 2)))
        self.workload = Workload(MappingProxyType(dict(self._kinds)))
        return True
