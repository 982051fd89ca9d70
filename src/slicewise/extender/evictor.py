"""Evicts pods of lower priority where the scheduler's own preemption cannot help.

A scheduler looks for victims by sums of units. Where a node's sum suffices and no single GPU does,
it finds none and asks nobody, so the pod would wait for ever. A refused pod for which no victims
were named within a moment is helped here: the fewest and least important pods are evicted through
the Eviction API, all of them or none, and their room is kept for it.

A scheduler that hears of a pod's end before we do asks too early, and nothing makes it ask again:
a refused pod that fits by now is annotated, so that it does.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from slicewise.dialects.own.pods import FREED
from slicewise.explain.pod_query import PodQuery
from slicewise.extender.binder import Clock
from slicewise.extender.decisions import Decisions
from slicewise.extender.fair_keeper import FairKeeper
from slicewise.extender.metrics import Metrics
from slicewise.kube.outcomes import PodEvent, PodEvictions, WriteStatus
from slicewise.model import NodeState, Pod, PodRecord, SlicewiseError, Snapshot
from slicewise.model.backoff import Backoff
from slicewise.placement import RoomPlan, StepBudget, VictimLimits, plan_room
from slicewise.placement.budget import NODE_STEPS, PREEMPT_STEPS

# A scheduler asks for victims right after a refusal, if it asks at all.
AFTER_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.25
_MOST: Final = 64
# Budgets may forbid the cheapest victims; so many other sets are tried at once.
_SETS: Final = 8
_PAUSES: Final = Backoff(2.0, 30.0)
_SHOWN: Final = 8
_TRIES: Final = 8


@dataclass(slots=True)
class _RefusedPod:
    """A pod that fits no node, the nodes that were asked about, and when it is looked at."""

    pod: Pod
    names: Sequence[str]
    due: float
    tries: int = 0
    fitted: bool = False
    """Whether it has fitted since, and nobody has asked about it."""


class Evictor:
    """Makes room for refused pods, one after another, the most important first."""

    def __init__(
        self,
        decisions: Decisions,
        writer: PodEvictions,
        metrics: Metrics | None = None,
        *,
        evict: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._decisions = decisions
        self._writer = writer
        self._metrics = metrics
        self._evicts = evict
        self._clock = clock
        self.fairness: FairKeeper | None = None
        """Keeps room for pods that wait long; hears of the same refusals."""
        self._refused: dict[str, _RefusedPod] = {}
        self._noted = asyncio.Event()
        self._log = structlog.get_logger(__name__).bind()

    def note_refusal(self, pod: Pod, names: Sequence[str]) -> None:
        """No node of these can take the pod now."""
        if not names:
            return
        if self.fairness is not None:
            self.fairness.note_refusal(pod, names)
        known = self._refused.get(pod.uid)
        if known is not None:
            known.pod, known.names, known.fitted = pod, names, False
            return
        if len(self._refused) >= _MOST:
            least = min(self._refused.values(), key=lambda each: each.pod.priority)
            if least.pod.priority >= pod.priority:
                return
            del self._refused[least.pod.uid]
        self._refused[pod.uid] = _RefusedPod(pod, names, self._clock() + AFTER_SECONDS)
        self._noted.set()

    def forget(self, uid: str) -> None:
        """The pod fits, or the scheduler evicts for it itself."""
        self._refused.pop(uid, None)

    async def run(self) -> None:
        """Help refused pods until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._refused:
                await asyncio.sleep(_LOOK_SECONDS)
                self._decisions.nominations.renew()
                await self.look()

    async def look(self) -> None:
        """Help every pod whose time has come."""
        now, state = self._clock(), self._decisions.queries.state
        due = [each for each in self._refused.values() if each.due <= now]
        if not due or not state.ready:
            return
        lowest = _find_lowest(state.snapshot())
        for refused in sorted(due, key=lambda each: (-each.pod.priority, each.pod.created)):
            try:
                pause = await self._help(refused, lowest)
            except SlicewiseError as error:
                # The API server or the ledger is not there at present; the pod still waits.
                self._log.warning("no victims found", pod=_name(refused.pod), error=str(error))
                pause = self._delay(refused)
            if pause is None:
                self._refused.pop(refused.pod.uid, None)
            else:
                refused.due = self._clock() + pause

    def _delay(self, refused: _RefusedPod) -> float | None:
        """How long until the next of several attempts; None after the last."""
        refused.tries += 1
        return _PAUSES.delay(refused.tries, 1.0) if refused.tries <= _TRIES else None

    async def _help(self, refused: _RefusedPod, lowest: int) -> float | None:
        """Make room for the pod if evictions can, or wake it; when to look again, if at all."""
        pod = self._decisions.queries.state.ledger.pod(refused.pod.uid)
        if pod is None:
            # The scheduler's watch is ahead of ours, or the pod is gone.
            return self._delay(refused)
        if pod.node is not None or pod.deleting:
            return None
        refused.pod = pod
        query = self._decisions.queries.build(pod)
        if self._fits(query, refused.names):
            # What has freed the room usually wakes the scheduler as well.
            if refused.fitted:
                await self._wake(pod)
                return self._delay(refused)
            refused.fitted = True
            return AFTER_SECONDS
        if self._decisions.nominations.awaits(pod.uid):
            return AFTER_SECONDS
        if not self._evicts or not pod.preempts or pod.priority <= lowest:
            return None
        return await self._make_room(refused, query)

    def _fits(self, query: PodQuery, names: Sequence[str]) -> bool:
        return any(self._decisions.screen(query, list(names)).fits)

    async def _wake(self, pod: Pod) -> None:
        """Have the scheduler ask about the pod again."""
        stamp = datetime.now(UTC).isoformat()
        outcome = await self._writer.annotate_pod(pod, PodRecord(annotations={FREED: stamp}))
        self._log.info("refused pod fits by now", pod=_name(pod), written=outcome.status.value)

    async def _make_room(self, refused: _RefusedPod, query: PodQuery) -> float | None:
        """Evict the cheapest set of pods that may all go; when to look again, if at all."""
        excluded = dict[str, str]()
        for _ in range(_SETS):
            plan = await self._plan(query, refused.names, frozenset(excluded))
            if plan is None:
                break
            victims = self._find_victims(plan)
            blocked = await self._writer.find_blocked(victims) if victims else {}
            if not blocked:
                done = self._still_waits(refused, plan) and await self._evict(query.pod, plan)
                return AFTER_SECONDS if done else self._delay(refused)
            excluded |= blocked
            query = self._decisions.queries.build(query.pod)
        if not excluded:
            return None
        self._tell_blocked(query.pod, excluded)
        return self._delay(refused)

    async def _plan(
        self, query: PodQuery, names: Sequence[str], excluded: frozenset[str]
    ) -> RoomPlan | None:
        """The plan that costs least over the nodes that the steps reach."""
        budget, best = StepBudget(PREEMPT_STEPS), None
        priority = query.pod.priority
        states = [state for name in names if (state := query.snapshot.get(name)) is not None]
        ordered = sorted(states, key=lambda state: _count_lower(state, priority))
        for state in ordered:
            if not budget.left:
                break
            plan = self._plan_on(query, state, excluded, budget)
            if plan is not None and (best is None or plan.eviction.cost < best.eviction.cost):
                best = plan
            await asyncio.sleep(0)
        return best

    def _plan_on(
        self, query: PodQuery, state: NodeState, excluded: frozenset[str], budget: StepBudget
    ) -> RoomPlan | None:
        nominations, ledger = self._decisions.nominations, self._decisions.queries.state.ledger
        leaving = nominations.leaving(state, query.pod.uid)
        # Only pods that the API has shown can be evicted, and each of them for one pod.
        allowed = {
            each.uid
            for each in state.holdings
            if each.charges and (pod := ledger.pod(each.uid)) is not None and not pod.deleting
        } - (nominations.taken(query.pod.uid) | excluded)
        part = budget.split(NODE_STEPS)
        limits = VictimLimits(allowed, leaving, part)
        plan = plan_room(state, query.wanted, query.pod.priority, limits)
        budget.settle(part)
        budget.take()
        return plan

    def _find_victims(self, plan: RoomPlan) -> list[Pod]:
        pods = map(
            self._decisions.queries.state.ledger.pod, (each.uid for each in plan.eviction.victims)
        )
        return [pod for pod in pods if pod is not None]

    def _still_waits(self, refused: _RefusedPod, plan: RoomPlan) -> bool:
        """Whether the plan is still what is needed, after others have had their turn."""
        queries, uid = self._decisions.queries, refused.pod.uid
        pod = queries.state.ledger.pod(uid)
        if not queries.state.ready or pod is None or pod.node is not None or pod.deleting:
            return False
        if len(self._find_victims(plan)) < len(plan.eviction.victims):
            return False
        if self._decisions.nominations.taken(uid).intersection(plan.uids):
            return False
        return not self._fits(queries.build(pod), refused.names)

    async def _evict(self, pod: Pod, plan: RoomPlan) -> bool:
        """Keep the room of the plan for the pod, and evict; false when somebody stays."""
        node, victims = plan.eviction.node, self._find_victims(plan)
        self._decisions.nominations.nominate(pod, {node: plan.uids}, node)
        for victim in victims:
            if not await self._evict_one(victim, pod, node):
                return False
        if victims:
            named = ", ".join(map(_name, victims[:_SHOWN]))
            note = f"evicted {len(victims)} of lower priority from node {node}: {named}"
            self._writer.post_event(pod, PodEvent(reason="Preempting", note=note))
        return True

    async def _evict_one(self, victim: Pod, pod: Pod, node: str) -> bool:
        outcome = await self._writer.evict_pod(victim)
        done = outcome.status in (WriteStatus.DONE, WriteStatus.GONE)
        if self._metrics is not None:
            self._metrics.decided("evict", outcome.status.value)
        self._log.info(
            "pod evicted" if done else "pod not evicted",
            pod=_name(victim),
            node=node,
            reason=f"preempted by {_name(pod)}",
            error="" if done else outcome.detail,
        )
        if outcome.status is WriteStatus.DONE:
            note = f"Preempted by {_name(pod)} of priority {pod.priority} on node {node}: its GPUs"
            event = PodEvent(reason="Preempted", note=note, action="Preempting", warning=True)
            self._writer.post_event(victim, event)
        return done

    def _tell_blocked(self, pod: Pod, blocked: dict[str, str]) -> None:
        ledger = self._decisions.queries.state.ledger
        known = ((ledger.pod(uid), why) for uid, why in list(blocked.items())[:_SHOWN])
        named = "; ".join(f"{_name(each)}: {why}" for each, why in known if each is not None)
        note = f"pods of lower priority would make room and may not be evicted: {named}"
        self._writer.post_event(pod, PodEvent(reason="PreemptionBlocked", note=note[:1024]))
        self._log.info("eviction blocked", pod=_name(pod), victims=len(blocked))


def _count_lower(state: NodeState, priority: int) -> tuple[bool, int]:
    """Nodes where something can be evicted first, and those with little to evict before others."""
    lower = sum(each.priority < priority for each in state.holdings)
    return (not lower, lower)


def _find_lowest(snapshot: Snapshot) -> int:
    """The lowest priority of all pods that hold GPUs."""
    found = (each.priority for state in snapshot for each in state.holdings if each.charges)
    return min(found, default=1 << 31)


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
