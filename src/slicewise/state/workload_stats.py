"""Statistics of what pods of this cluster ask for, from those that arrive.

They are renewed whenever the number of arrivals has doubled, because every planner then computes
its price tables anew.
"""

from collections import Counter
from types import MappingProxyType
from typing import Final

from slicewise.model import Request
from slicewise.placement import PodShape, Workload, shape_of

_FIRST: Final = 50
_KINDS: Final = 4096


class WorkloadStats:
    """Counts the shapes of arriving pods for the planners."""

    def __init__(self) -> None:
        self.workload = Workload()
        """The statistics of the last renewal."""
        self.arrivals = 0
        """How many pods have arrived."""
        self._kinds: Counter[PodShape] = Counter()
        self._next = _FIRST

    def count(self, request: Request) -> bool:
        """Count one more pod; true when the statistics were renewed."""
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
