"""Replays: every arrival goes through the real ledger and the real planner.

A pod that no node can take is gone for good: no queue, no retry, no preemption.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from slicewise.cluster import Assume, Confirm, Ledger, NodeSeen, PodGone
from slicewise.dialects import DEFAULT
from slicewise.placement import PlacementRequest, Planner, Policy, Workload, shape_of
from slicewise.placement.fgd import FragmentationTable
from slicewise.sim.draw import MEASURED, WARM_UP
from slicewise.sim.record import ReplayRecord, SteadyRecord
from slicewise.sim.trace import ArrivalOrder, PodVisits, Trace

# Statistics are learned again whenever the number of arrivals has doubled.
FIRST_LESSON: Final = 50
_FOREVER: Final = float("inf")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay: learn from arrivals instead of knowing the trace, and what to measure."""

    learn: bool = False
    fragmentation: bool = True
    clock: Callable[[], float] = perf_counter
    progress: Progress | None = None


class Replay:
    """One cluster under one policy, fed pod by pod."""

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        ranks: Iterable[tuple[str, int]] = (),
        options: ReplayOptions | None = None,
    ) -> None:
        self.trace = trace
        self.options = options or ReplayOptions()
        self.ledger = Ledger(DEFAULT)
        for node in trace.nodes:
            self.ledger.apply(NodeSeen(node))
        known = Workload() if self.options.learn else trace.workload
        self.planner = Planner(policy, known, dict(ranks) or None)
        self.allocated = 0
        self.allocated_memory = 0
        self.decisions: list[float] = []
        self.sizes = [pod.size for pod in trace.pods]
        self._fragments = FragmentationTable(self.planner.tables, trace.workload)
        self._seen: list[int] = []
        self._lesson = FIRST_LESSON
        self._held: dict[str, tuple[int, int]] = {}

    def arrive(self, pod: int) -> str | None:
        """Offer the cluster a pod of the trace; its UID when a node took it."""
        listed = self.trace.pods[pod]
        uid = f"{len(self._seen):07}"
        self._seen.append(pod)
        start = self.options.clock()
        placement = self.planner.place(
            self.ledger.snapshot(), PlacementRequest(listed.request, salt=uid)
        )
        self.decisions.append(self.options.clock() - start)
        if self.options.learn and len(self._seen) == self._lesson:
            self._learn()
        if placement is None:
            return None
        allocation = placement.allocation
        taken = self.ledger.apply(
            Assume(uid, listed.namespace, listed.name, listed.request, allocation, _FOREVER)
        )
        if not taken or not self.ledger.apply(Confirm(uid)):
            raise AssertionError(f"the ledger refused what the planner chose for {listed.name}")
        self._count(uid, pod)
        return uid

    def leave(self, uid: str) -> None:
        self.ledger.apply(PodGone(uid))
        demand, memory = self._held.pop(uid)
        self.allocated -= demand
        self.allocated_memory -= memory

    def fragmented(self) -> float:
        """Thousandths of a GPU that an average pod of the trace cannot use now."""
        if not self.options.fragmentation:
            return 0.0
        self.planner.tables.sync(self.ledger.snapshot())
        self._fragments.refresh()
        return float(self._fragments.amount.sum())

    def _count(self, uid: str, pod: int) -> None:
        demand = self.trace.demands[pod]
        memory = sum(piece.memory for piece in self.ledger.allocation(uid) or ())
        self._held[uid] = (demand, memory)
        self.allocated += demand
        self.allocated_memory += memory

    def _learn(self) -> None:
        """Plan with what has arrived so far; the ledger and the tables stay."""
        self._lesson *= 2
        self.planner.workload = Workload.of(
            shape_of(self.trace.pods[pod].request) for pod in self._seen
        )


def replay(
    trace: Trace, arrivals: ArrivalOrder, policy: Policy, options: ReplayOptions | None = None
) -> ReplayRecord:
    """Every arrival in turn; nothing leaves."""
    run = Replay(trace, policy, arrivals.ranks.items(), options)
    record = ReplayRecord(policy.name, trace.capacity, trace.memory)
    arrived = 0
    for at, pod in enumerate(arrivals.order):
        uid = run.arrive(pod)
        arrived += trace.demands[pod]
        (record.refused if uid is None else record.accepted)[run.sizes[pod]] += 1
        record.arrived.append(arrived)
        record.allocated.append(run.allocated)
        record.allocated_memory.append(run.allocated_memory)
        if run.options.fragmentation:
            record.fragmented.append(run.fragmented())
        if run.options.progress is not None:
            run.options.progress(at + 1)
    record.decisions = run.decisions
    return record


def replay_visits(
    trace: Trace, visits: PodVisits, policy: Policy, options: ReplayOptions | None = None
) -> SteadyRecord:
    """Every visit in turn; means are taken over time once the cluster has warmed up."""
    run = Replay(trace, policy, visits.ranks.items(), options)
    steady = SteadyRecord(policy.name, trace.capacity)
    clock = _Clock(run, steady)
    for at, pod in enumerate(visits.order):
        now = visits.times[at]
        clock.advance(now)
        uid = run.arrive(pod)
        if uid is not None:
            clock.stay(uid, now + visits.stays[at])
        if now >= WARM_UP:
            steady.offered += trace.demands[pod]
            steady.taken += trace.demands[pod] if uid is not None else 0
            (steady.refused if uid is None else steady.accepted)[run.sizes[pod]] += 1
        if run.options.progress is not None:
            run.options.progress(at + 1)
    clock.advance(WARM_UP + MEASURED)
    steady.decisions = run.decisions
    return steady


class _Clock:
    """Lets pods leave when their time has come, and takes means from the warm-up's end on."""

    def __init__(self, run: Replay, steady: SteadyRecord) -> None:
        self._run, self._steady = run, steady
        self._leaving: list[tuple[float, str]] = []
        self._now = 0.0

    def stay(self, uid: str, until: float) -> None:
        heapq.heappush(self._leaving, (until, uid))

    def advance(self, now: float) -> None:
        while self._leaving and self._leaving[0][0] <= now:
            end, gone = heapq.heappop(self._leaving)
            self._count(end)
            self._run.leave(gone)
        self._count(now)

    def _count(self, now: float) -> None:
        span = min(now, WARM_UP + MEASURED) - max(self._now, WARM_UP)
        if span > 0.0:
            weight = span / MEASURED
            self._steady.allocated += weight * self._run.allocated
            if self._run.options.fragmentation:
                self._steady.fragmented += weight * self._run.fragmented()
        self._now = now
