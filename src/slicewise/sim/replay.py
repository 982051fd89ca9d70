"""Replays: every arrival goes through the real ledger and the real planner.

A pod that no node can take is gone for good: no queue, no retry, no preemption. With moves, others
are moved for it first where a few of them suffice.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from slicewise.cluster import Assume, Confirm, Forget, Ledger, NodeSeen, PodGone
from slicewise.dialects import DEFAULT
from slicewise.model import Allocation, Request
from slicewise.placement import PlacementRequest, Planner, Policy, Workload, shape_of
from slicewise.placement.defrag import MovablePod, SearchLimits, plan_moves
from slicewise.placement.scoring.fgd import FragmentationTable
from slicewise.sim.draw import MEASURED, WARM_UP
from slicewise.sim.record import ReplayRecord, SteadyRecord
from slicewise.sim.trace import ArrivalOrder, PodVisits, Trace

# Statistics are learned again whenever the number of arrivals has doubled.
FIRST_LESSON: Final = 50
_FOREVER: Final = float("inf")
# Thousands of pods are refused in a replay, so that each is thought about for a moment only.
_CHECKS: Final = 4_000
_TRIALS: Final = 40

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay: learn from arrivals instead of knowing the trace, and what to measure."""

    learn: bool = False
    fragmentation: bool = True
    clock: Callable[[], float] = perf_counter
    progress: Progress | None = None
    moves: int = 0
    """How many pods may be moved for one that no node can take."""


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
        self.moves = 0
        """How many pods were moved so far."""

    def arrive(self, pod: int) -> str | None:
        """Offer the cluster a pod of the trace; its UID when a node took it."""
        uid = f"{len(self._seen):07}"
        allocation = self.choose(uid, pod)
        self.see(pod)
        if allocation is None:
            allocation = self._make_room(pod, uid)
        if allocation is None:
            return None
        self.take(uid, pod, allocation)
        return uid

    def see(self, pod: int) -> None:
        """Count an arrival, and learn from all of them now and then."""
        self._seen.append(pod)
        if self.options.learn and len(self._seen) == self._lesson:
            self._learn()

    def choose(self, uid: str, pod: int) -> Allocation | None:
        """Where the pod fits, also in what is kept for it; None when no node can take it."""
        snapshot = self.ledger.snapshot()
        for node, held in self.ledger.reserved_on(uid):
            snapshot = snapshot.release(node, held)
        wanted = PlacementRequest(self.trace.pods[pod].request, salt=uid)
        start = self.options.clock()
        placement = self.planner.place(snapshot, wanted)
        self.decisions.append(self.options.clock() - start)
        return None if placement is None else placement.allocation

    def take(self, uid: str, pod: int, allocation: Allocation) -> None:
        """The pod holds this from now on."""
        self._assume(uid, pod, allocation)
        self._count(uid, pod)

    def _make_room(self, pod: int, uid: str) -> Allocation | None:
        """Where a refused pod fits after a few moves, which are made; None if there are none."""
        wanted = PlacementRequest(self.trace.pods[pod].request, salt=uid)
        if not self.options.moves or not wanted.request.containers:
            return None
        limits = SearchLimits(self.options.moves, checks=_CHECKS, trials=_TRIALS, helpers=0)
        snapshot = self.ledger.snapshot()
        movable = [
            MovablePod(
                held.uid,
                state.node.name,
                PlacementRequest(self._request(held.uid), salt=held.uid),
            )
            for state in snapshot
            for held in state.holdings
            if held.charges
        ]
        plan = plan_moves(self.planner, snapshot, wanted, movable, limits).plan
        if plan is None:
            return None
        for move in plan.moves:
            self.ledger.apply(Forget(move.uid))
            self._assume(move.uid, self._seen[int(move.uid)], move.target)
        self.moves += len(plan.moves)
        return plan.allocation

    def _request(self, uid: str) -> Request:
        return self.trace.pods[self._seen[int(uid)]].request

    def _assume(self, uid: str, pod: int, allocation: Allocation) -> None:
        listed = self.trace.pods[pod]
        taken = self.ledger.apply(
            Assume(uid, listed.namespace, listed.name, listed.request, allocation, _FOREVER)
        )
        if not taken or not self.ledger.apply(Confirm(uid)):
            raise AssertionError(f"the ledger refused what the planner chose for {listed.name}")

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
        moved = run.moves
        uid = run.arrive(pod)
        if uid is not None:
            clock.stay(uid, now + visits.stays[at])
        if now >= WARM_UP:
            steady.moves += run.moves - moved
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
