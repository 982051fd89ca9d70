"""What a set of replays shows: one summary per policy and seed, means over seeds, and JSON."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from slicewise.model import count
from slicewise.placement import shape_of
from slicewise.sim.bound import Bounds, bound
from slicewise.sim.record import ReplayRecord, SteadyRecord
from slicewise.sim.trace import Trace

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy's replay in percent of capacity; `at_full` is at 100 percent arrived load."""

    policy: str
    seed: int
    at_full: float
    at_end: float
    memory_at_end: float
    fragmented: float
    refused: Mapping[str, int]
    accepted: Mapping[str, int]
    p50_ms: float
    p99_ms: float
    allocation: tuple[float, ...] = ()
    fragmentation: tuple[float, ...] = ()

    @property
    def unallocated(self) -> float:
        """What stays idle at 100 percent arrived load, or at the end of a shorter replay."""
        return 100.0 - (self.at_end if math.isnan(self.at_full) else self.at_full)


@dataclass(frozen=True, slots=True)
class SteadySummary:
    """One policy's cluster with departures: means over the measured time, in percent."""

    policy: str
    seed: int
    allocated: float
    accepted_demand: float
    accepted_percent: Mapping[str, float]
    fragmented: float
    refused: Mapping[str, int]
    accepted: Mapping[str, int]
    p50_ms: float
    p99_ms: float
    moves_per_1000: float = 0.0
    """Pods that were moved for others, per thousand arrivals."""


def summarise(record: ReplayRecord, seed: int) -> Summary:
    allocation, fragmentation = record.allocation_curve(), record.fragmentation_curve()
    last = record.allocated[-1] if record.allocated else 0
    memory = record.allocated_memory[-1] if record.allocated_memory else 0
    tail = fragmentation or (NAN,)
    reached = bool(record.loads) and record.loads[-1] >= 99.0
    at = 100 if reached else max(0, round(record.loads[-1]) if record.loads else 0)
    return Summary(
        policy=record.policy,
        seed=seed,
        at_full=allocation[100] if reached else NAN,
        at_end=100.0 * last / record.capacity,
        memory_at_end=100.0 * memory / max(1, record.memory),
        fragmented=fragmentation[at] if fragmentation else tail[-1],
        refused=dict(record.refused),
        accepted=dict(record.accepted),
        p50_ms=record.decision_ms(50),
        p99_ms=record.decision_ms(99),
        allocation=allocation,
        fragmentation=fragmentation,
    )


def summarise_steady(steady: SteadyRecord, seed: int) -> SteadySummary:
    sizes = {*steady.accepted, *steady.refused}
    return SteadySummary(
        policy=steady.policy,
        seed=seed,
        allocated=100.0 * steady.allocated / steady.capacity,
        accepted_demand=100.0 * steady.taken / max(1, steady.offered),
        accepted_percent={size: steady.accepted_percent(size) for size in sorted(sizes)},
        fragmented=10.0 * steady.fragmented / steady.capacity,
        refused=dict(steady.refused),
        accepted=dict(steady.accepted),
        p50_ms=steady.decision_ms(50),
        p99_ms=steady.decision_ms(99),
        moves_per_1000=1000.0 * steady.moves / max(1, _came(steady)),
    )


def _came(steady: SteadyRecord) -> int:
    return steady.accepted.total() + steady.refused.total()


def mean(values: Iterable[float]) -> float:
    """The mean of the numbers there are; nan when there is none."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else NAN


def mean_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(mean(points) for points in zip(*curves, strict=True))


def add_counts(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def bound_of(trace: Trace) -> Bounds | None:
    """The bounds, where compute is all that is counted as allocated."""
    kinds = [shape_of(pod.request) for pod in trace.pods]
    return None if any(kind.count and not kind.cores for kind in kinds) else bound(trace)


def describe(trace: Trace) -> dict[str, object]:
    bounds = bound_of(trace)
    return {
        "trace": trace.name,
        "nodes": len(trace.nodes),
        "gpus": trace.capacity // 100,
        "pods": len(trace.pods),
        "bounds": None
        if bounds is None
        else {"lossless_percent": bounds.lossless, "most_at_100_percent": bounds.most},
        "notes": list(trace.notes),
    }


def as_json(summary: Summary | SteadySummary) -> dict[str, object]:
    """A summary as JSON shows it: what is not a number becomes null."""
    return {key: _clean(value) for key, value in asdict(summary).items()}


def _clean(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    return value


def name_trace(trace: Trace) -> str:
    """The trace with the size of its cluster."""
    gpus = count(trace.capacity // 100, "GPU")
    return f"{trace.name}: {count(len(trace.nodes), 'node')}, {gpus}"
