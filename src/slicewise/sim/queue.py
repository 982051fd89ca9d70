"""Replays with a queue: pods that fit nowhere wait, and are tried again when another pod ends.

Waiting pods are tried in the order of their arrival, and one that does not fit holds up nobody:
so a scheduler goes on. With fair rules, room is kept for pods that have waited too long.
"""

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from slicewise.cluster import Expire, Hold
from slicewise.model import Pod, Request
from slicewise.placement import PlacementRequest, Policy, keep_room
from slicewise.placement.fairness import FairQueue, FairRules, find_nearest_room
from slicewise.sim.draw import MEASURED, WARM_UP
from slicewise.sim.replay import Replay, ReplayOptions
from slicewise.sim.trace import PodVisits, Trace

END: Final = WARM_UP + MEASURED


@dataclass(slots=True)
class QueueRecord:
    """How long pods waited, by size and in mean stays, and how much was allocated meanwhile."""

    policy: str
    capacity: int
    seed: int = 0
    allocated: float = 0.0
    """The mean over the measured time, in percent of a GPU."""
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of every pod, also of those that waited until the end."""
    unbound: Counter[str] = field(default_factory=Counter)
    """The pods that had no node at the end."""
    kept: int = 0
    """How often room was kept for a pod."""

    @property
    def allocated_percent(self) -> float:
        return 100.0 * self.allocated / self.capacity

    def longest(self, *, whole: bool) -> float:
        """The longest wait of pods that ask for whole GPUs, or of the others."""
        found = (max(each) for size, each in self.waits.items() if size.isdigit() == whole)
        return max(found, default=0.0)

    def describe(self) -> dict[str, object]:
        """The record as JSON shows it."""
        sizes = {
            size: {"pods": len(each), "longest_wait": max(each), "waiting": self.unbound[size]}
            for size, each in sorted(self.waits.items())
        }
        facts = {"policy": self.policy, "seed": self.seed, "allocated": self.allocated_percent}
        return {**facts, "kept": self.kept, "sizes": sizes}

    def count_unbound(self, *, whole: bool) -> int:
        return sum(count for size, count in self.unbound.items() if size.isdigit() == whole)


@dataclass(slots=True)
class _WaitingPod:
    number: int
    arrived: float
    stay: float


class QueueReplay:
    """One cluster under one policy, with a queue in front of it."""

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        visits: PodVisits,
        options: ReplayOptions,
        fair: FairRules | None = None,
    ) -> None:
        self.run = Replay(trace, policy, visits.ranks.items(), options)
        name = policy.name if fair is None else f"{policy.name} fair"
        self.record = QueueRecord(name, trace.capacity)
        """What was seen so far."""
        self.fair = None if fair is None else FairQueue(fair)
        """Who waits since when, if the rules are to be fair."""
        self.waiting: dict[str, _WaitingPod] = {}
        """Pods without a node, by arrival."""
        self.awaited: frozenset[str] = frozenset()
        """The pods that must end before the one fits that room is kept for."""
        self._trace = trace
        self._visits = visits
        self._node = ""
        self._ending: list[tuple[float, str]] = []
        self._now = 0.0

    def play(self) -> QueueRecord:
        """Every visit in turn; means and waits are of the time after the warm-up."""
        for at, number in enumerate(self._visits.order):
            self._advance(self._visits.times[at])
            pod = _WaitingPod(number, self._now, self._visits.stays[at])
            self.run.see(number)
            if not self._try(f"{at:07}", pod):
                self.waiting[f"{at:07}"] = pod
                if self.fair is not None:
                    self.fair.wait(f"{at:07}", self._now)
            if self.run.options.progress is not None:
                self.run.options.progress(at + 1)
        self._advance(END)
        for pod in self.waiting.values():
            self.record.waits[self._size(pod)].append(END - pod.arrived)
            self.record.unbound[self._size(pod)] += 1
        return self.record

    def _advance(self, until: float) -> None:
        """Let pods end and the queue move until this time."""
        while True:
            ends = self._ending[0][0] if self._ending else END + 1.0
            deadline = ends
            if self.fair is not None and self.fair.holder is not None:
                deadline = min(ends, self.fair.deadline)
            if min(ends, deadline) > until:
                break
            self._pass_time(min(ends, deadline))
            if ends <= deadline:
                self.run.leave(heapq.heappop(self._ending)[1])
            self._keep_fair()
            self._move_queue()
        self._pass_time(until)
        self._keep_fair()

    def _pass_time(self, now: float) -> None:
        span = min(now, END) - max(self._now, WARM_UP)
        if span > 0.0:
            self.record.allocated += span / MEASURED * self.run.allocated
        self._now = max(now, self._now)

    def _move_queue(self) -> None:
        """Try waiting pods in their order; of equal ones that fit nowhere only the first."""
        refused: set[Request] = set()
        for uid, pod in list(self.waiting.items()):
            request = self._trace.pods[pod.number].request
            holds = self.fair is not None and self.fair.holder == uid
            if request in refused and not holds:
                continue
            if self._try(uid, pod):
                del self.waiting[uid]
            else:
                refused.add(request)

    def _try(self, uid: str, pod: _WaitingPod) -> bool:
        allocation = self.run.choose(uid, pod.number)
        if allocation is None:
            return False
        self.run.take(uid, pod.number, allocation)
        heapq.heappush(self._ending, (self._now + pod.stay, uid))
        if self.fair is not None:
            self.fair.leave(uid)
        self.record.waits[self._size(pod)].append(self._now - pod.arrived)
        return True

    def _keep_fair(self) -> None:
        """End what is over, and keep what has become free, or begin to."""
        fair, ledger = self.fair, self.run.ledger
        if fair is None:
            return
        ledger.apply(Expire(self._now))
        if fair.expire(self._now) is not None:
            self._move_queue()
        for uid in fair.due(self._now):
            found = find_nearest_room(ledger.snapshot(), self._ask(uid))
            if found is not None:
                self._node = found.node
                self.awaited = frozenset(each.uid for each in found.victims)
                fair.grant(uid, self._now)
                self.record.kept += 1
                break
        if fair.holder is not None:
            self._hold(fair.holder, fair.deadline)

    def _hold(self, uid: str, deadline: float) -> None:
        ledger = self.run.ledger
        snapshot = ledger.snapshot()
        for node, held in ledger.reserved_on(uid):
            snapshot = snapshot.release(node, held)
        kept = keep_room(self.run.planner, snapshot, self._ask(uid), self._node, self.awaited)
        if kept is not None:
            listed = self._trace.pods[self.waiting[uid].number]
            given = (kept.allocation,) if kept.allocation.containers else ()
            ledger.apply(
                Hold(Pod(uid, listed.namespace, listed.name), kept.request, given, deadline)
            )

    def _ask(self, uid: str) -> PlacementRequest:
        return PlacementRequest(self._trace.pods[self.waiting[uid].number].request, salt=uid)

    def _size(self, pod: _WaitingPod) -> str:
        return self.run.sizes[pod.number]


def replay_queue(
    trace: Trace,
    visits: PodVisits,
    policy: Policy,
    options: ReplayOptions | None = None,
    fair: FairRules | None = None,
) -> QueueRecord:
    """Every visit in turn, with a queue, and with fairness if there are rules for it."""
    return QueueReplay(trace, policy, visits, options or ReplayOptions(), fair).play()
