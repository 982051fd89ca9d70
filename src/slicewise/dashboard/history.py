"""Allocation and fragmentation over time, in a bounded number of points.

When the points are full every second one is dropped and the pace is halved: the whole life of the
service is kept, the longer it gets the coarser.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MOST: Final = 600
_PACE: Final = 2.0


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """How the cluster was at one moment; amounts in percent."""

    seconds: float
    """Wall-clock seconds since 1970."""
    allocated: float
    filled: float
    fragmented: float
    waiting: int
    used: float | None = None
    """Percent of the compute in use, where that is measured."""


class ClusterHistory:
    """Points at an even pace."""

    def __init__(self, most: int = _MOST, pace: float = _PACE) -> None:
        self._most = most
        self._pace = pace
        self._points: list[HistoryPoint] = []

    def due(self, seconds: float) -> bool:
        return not self._points or seconds - self._points[-1].seconds >= self._pace

    def note(self, point: HistoryPoint) -> None:
        """Keep one more point, and fewer of the old ones if there are too many."""
        self._points.append(point)
        if len(self._points) > self._most:
            # The newest stays, or the line would end in the past.
            self._points = self._points[len(self._points) % 2 == 0 :: 2]
            self._pace *= 2

    def rows(self) -> Mapping[str, object]:
        """Every point by its time in milliseconds."""
        return {
            str(round(1000 * each.seconds)): [
                round(1000 * each.seconds),
                each.allocated,
                each.filled,
                each.fragmented,
                each.waiting,
                each.used,
            ]
            for each in self._points
        }
