"""What the agent decides for containers on one GPU: how launches are charged, and who may borrow.

Pure: figures in, figures out, ten times a second. Compute is in hundredths of a percent of the
GPU. Nobody gets less than the guarantee, and what is lent never exceeds what guarantees leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.nodeagent.limits.grant_file import ONE

ALL: Final = 10_000
PERIOD_SECONDS: Final = 0.1
WINDOW: Final = 20
"""Samples over which use is averaged before the scale is corrected."""
ROUNDING: Final = 0.5
"""What each process' whole percentage is taken to lack, for NVML is taken to round down."""
_LEAST_USE: Final = 3.0
_STEP: Final = 0.04
_RATIO: Final = (0.5, 2.0)
_SCALE: Final = (0.2, 4.0)
# What launches cost is then a guess by their size, and may be far off.
_UNTIMED_SCALE: Final = (0.01, 100.0)
# A container that is not held back gets what it uses, and some more to grow into.
_GROWTH: Final = 1.25
_MARGIN: Final = 200


@dataclass(frozen=True, slots=True)
class UseSample:
    """One period on one GPU: percent of it that NVML saw in use, and that was charged."""

    seen: float
    charged: float
    processes: int = 1
    """Processes that used at least one percent."""


def correct_scale(
    scale: float, samples: Sequence[UseSample], rounding: float = ROUNDING, *, timed: bool = True
) -> float:
    """The scale after the newest sample: what was charged comes to equal what was seen.

    Neighbours make launches look longer than they are and overlap makes them look shorter; the
    correction is slow, so that it follows these and not the noise of whole percentages. Where
    launches are not timed it has to make up for the guess of what they cost, too.
    """
    if not samples:
        return scale
    seen = sum(each.seen + rounding * each.processes for each in samples) / len(samples)
    charged = sum(each.charged for each in samples) / len(samples)
    # One whole percentage cannot tell any closer than this. Several err both ways: more for each
    # process would stop the correction as many half points before the share is reached.
    if abs(seen - charged) <= rounding:
        return scale
    seen += rounding if seen < charged else -rounding
    if seen <= _LEAST_USE or charged <= _LEAST_USE:
        return scale
    ratio = min(max(seen / charged, _RATIO[0]), _RATIO[1])
    lowest, highest = _SCALE if timed else _UNTIMED_SCALE
    return min(max(scale * float(ratio**_STEP), lowest), highest)


def write_scale(scale: float) -> int:
    """The scale as a grant has it."""
    return round(scale * ONE)


@dataclass(frozen=True, slots=True)
class ComputeClaim:
    """One container on a GPU: its guarantee, its limit, and what it has used of late."""

    cores: int
    limit: int
    """The most it may use; equal to `cores` for a hard limit."""
    rate: int = 0
    """What it has used in the last period."""
    hungry: bool = False
    """Whether it was held back in the last moments."""
    priority: int = 0
    weight: int = 0
    """By what idle compute is divided; 0 is by guarantee."""

    @property
    def hard(self) -> bool:
        return self.limit <= self.cores

    @property
    def wanted(self) -> int:
        """What it would use, as far as can be told."""
        if self.hard:
            return self.cores
        if self.hungry:
            return self.limit
        return min(self.limit, int(self.rate * _GROWTH) + _MARGIN)


def share_compute(claims: Sequence[ComputeClaim], unpaced: int = 0) -> list[int]:
    """What each container on one GPU is expected to use, which is all of the GPU at most.

    Each has as much of its guarantee as it wants. What is left, beside what containers without a
    share of compute use, goes to those who want more: to the highest priority first, there by
    weight.
    """
    given = [float(min(each.wanted, each.cores)) for each in claims]
    left = ALL - unpaced - sum(given)
    for priority in sorted({each.priority for each in claims}, reverse=True):
        candidates = [at for at, each in enumerate(claims) if each.priority == priority]
        left = _lend(claims, given, candidates, left)
    return [int(amount) for amount in given]


def set_ceilings(claims: Sequence[ComputeClaim], unpaced: int = 0) -> list[int]:
    """What each may use now: its part, and never less than its guarantee."""
    parts = share_compute(claims, unpaced)
    return [max(part, each.cores) for part, each in zip(parts, claims, strict=True)]


def _lend(
    claims: Sequence[ComputeClaim], given: list[float], candidates: Sequence[int], left: float
) -> float:
    """Divide what is left among these until nobody wants more; returns what is left then."""
    while left >= 1:
        open_ = [at for at in candidates if given[at] < claims[at].wanted]
        if not open_:
            break
        weights = {at: claims[at].weight or claims[at].cores or 1 for at in open_}
        total = sum(weights.values())
        portions = {
            at: min(left * weights[at] / total, claims[at].wanted - given[at]) for at in open_
        }
        for at, portion in portions.items():
            given[at] += portion
        left -= sum(portions.values())
    return left


OVERHEAD_SAMPLES: Final = 3


def find_overhead(samples: Sequence[int]) -> int:
    """What the driver counts for a container beyond its own account: the least seen of late."""
    recent = samples[-OVERHEAD_SAMPLES:]
    return max(0, min(recent, default=0))
