"""What a replay saw, arrival by arrival, and the curves read out of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

CURVE: Final = 131


@dataclass(slots=True)
class ReplayRecord:
    """Sums after every arrival, in percent of a GPU; times of decisions in seconds."""

    policy: str
    capacity: int
    memory: int
    arrived: list[int] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    allocated_memory: list[int] = field(default_factory=list)
    fragmented: list[float] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    decisions: list[float] = field(default_factory=list)

    @property
    def loads(self) -> list[float]:
        """Arrived load in percent of capacity, after every arrival."""
        return [100.0 * arrived / self.capacity for arrived in self.arrived]

    def allocation_curve(self) -> tuple[float, ...]:
        """GPU allocated at every whole percent of arrived load, in percent of capacity."""
        return read_out(self.loads, [100.0 * each / self.capacity for each in self.allocated])

    def fragmentation_curve(self) -> tuple[float, ...]:
        """Idle GPU an average pod cannot use, in percent of capacity; empty if not measured."""
        if not self.fragmented:
            return ()
        # Fragmentation is in thousandths of a GPU, capacity in hundredths.
        return read_out(self.loads, [10.0 * each / self.capacity for each in self.fragmented])

    def decision_ms(self, percentile: float) -> float:
        return _milliseconds(self.decisions, percentile)


def read_out(loads: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    """The mean of values per whole percent of load, 0 to 130; nan where no event is near.

    Values are rounded to hundredths and loads half to even, as the published curves were; a
    percent without events takes those of its neighbours.
    """
    sums, counts = [0.0] * CURVE, [0] * CURVE
    for load, value in zip(loads, values, strict=True):
        at = round(load)
        if at < CURVE:
            sums[at] += round(value, 2)
            counts[at] += 1
    curve = []
    for at in range(CURVE):
        near = [at] if counts[at] else range(max(0, at - 1), min(CURVE, at + 2))
        count = sum(counts[each] for each in near)
        curve.append(sum(sums[each] for each in near) / count if count else float("nan"))
    return tuple(curve)


@dataclass(slots=True)
class SteadyRecord:
    """A cluster that pods enter and leave: means over the time that was measured."""

    policy: str
    capacity: int
    allocated: float = 0.0
    fragmented: float = 0.0
    offered: int = 0
    taken: int = 0
    moves: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    decisions: list[float] = field(default_factory=list)

    def accepted_percent(self, size: str) -> float:
        """How many of the pods of this size were taken; nan when none came."""
        came = self.accepted[size] + self.refused[size]
        return 100.0 * self.accepted[size] / came if came else float("nan")

    def decision_ms(self, percentile: float) -> float:
        return _milliseconds(self.decisions, percentile)


def _milliseconds(seconds: Sequence[float], percentile: float) -> float:
    return 1e3 * float(np.percentile(seconds, percentile)) if seconds else 0.0


def order_sizes(counts: Iterable[str]) -> list[str]:
    return sorted(counts, key=_size_rank)


def _size_rank(size: str) -> tuple[int, int, str]:
    count, *parts = size.split()
    if not count.isdigit():
        return (size == "part", 0, size)
    return (2 if parts else 3, int(count), size)
