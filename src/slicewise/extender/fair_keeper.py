"""Keeps room for the pod that has waited longest, so that small pods do not take it for ever.

One pod at a time, on the node where fewest pods must end first, and until a deadline. Nobody is
evicted; a pod of higher priority that is refused ends it. The pod's annotation tells of it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from slicewise.dialects.own.pods import KEPT
from slicewise.explain.pod_query import PodQuery
from slicewise.extender.binder import Clock
from slicewise.extender.decisions import Decisions
from slicewise.kube.outcomes import PodEvent, PodEvictions
from slicewise.model import Pod, PodRecord, SlicewiseError, count
from slicewise.placement import Eviction
from slicewise.placement.fairness import FairQueue, FairRules, find_nearest_room

_LOOK_SECONDS: Final = 1.0
_MOST: Final = 64
_SHOWN: Final = 4


@dataclass(slots=True)
class _WaitingPod:
    """A pod that was refused, and the nodes that were asked about."""

    pod: Pod
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds that never go back for deadlines, and those since 1970 for how long pods wait."""

    steady: Clock = time.monotonic
    wall: Callable[[], float] = time.time


class FairKeeper:
    """Which refused pods wait, and for which of them room is kept."""

    def __init__(
        self,
        decisions: Decisions,
        writer: PodEvictions,
        rules: FairRules,
        *,
        freed: Callable[[], object],
        clocks: Clocks | None = None,
    ) -> None:
        """Keep room by these rules; `freed` hears when it is given up before its deadline."""
        self.queue = FairQueue(rules)
        """Who waits since when, by the wall clock."""
        self._decisions = decisions
        self._writer = writer
        self._freed = freed
        self._clocks = clocks or Clocks()
        self._waiting: dict[str, _WaitingPod] = {}
        self._noted = asyncio.Event()
        self._log = structlog.get_logger(__name__).bind()

    def note_refusal(self, pod: Pod, names: Sequence[str]) -> None:
        """No node of these can take the pod now."""
        # What the API shows of it counts, not what whoever asks sends.
        shown = self._decisions.queries.state.ledger.pod(pod.uid)
        if shown is None:
            return
        pod = shown
        self._yield_to(pod)
        if pod.uid not in self._waiting and len(self._waiting) >= _MOST:
            return
        self._waiting[pod.uid] = _WaitingPod(pod, names)
        self.queue.wait(pod.uid, pod.created or self._clocks.wall())
        self._noted.set()

    async def run(self) -> None:
        """Keep room until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._waiting:
                await asyncio.sleep(_LOOK_SECONDS)
                await self.look()

    async def look(self) -> None:
        """End what is over, and begin to keep room for the pod that is due."""
        self._drop_settled()
        now = self._clocks.wall()
        ended = self.queue.expire(now)
        if ended is not None:
            self._decisions.nominations.release(ended)
            await self._annotate(ended, f"no more since {_stamp(now)}; the pod waits again")
        for uid in self.queue.due(now):
            try:
                if await self._keep(uid):
                    return
            except SlicewiseError as error:
                # Not leading, or the API server is away: the pod still waits.
                self._log.warning("no room kept", pod=uid, error=str(error))
                return

    def _yield_to(self, pod: Pod) -> None:
        """Give up what is kept for a pod of lower priority than this one, which was refused."""
        held = self._waiting.get(self.queue.holder or "")
        if held is not None and held.pod.priority < pod.priority:
            self.queue.give_up(self._clocks.wall())
            self._decisions.nominations.release(held.pod.uid)
            self._freed()

    def _drop_settled(self) -> None:
        """Forget pods that are bound or gone."""
        ledger = self._decisions.queries.state.ledger
        for uid in list(self._waiting):
            pod = ledger.pod(uid)
            if pod is None or pod.node is not None or pod.deleting:
                del self._waiting[uid]
                self.queue.leave(uid)

    async def _keep(self, uid: str) -> bool:
        """Keep room for this pod, if there is any that others would leave."""
        waiting = self._waiting[uid]
        query = self._decisions.queries.build(waiting.pod)
        if not query.wants_gpu or self._fits(query, waiting.names):
            return False
        # Searching takes as long as it takes, and schedulers must not wait for it.
        found = await asyncio.to_thread(
            find_nearest_room, query.snapshot, query.wanted, list(waiting.names)
        )
        known = self._decisions.queries.state.ledger.pod(uid)
        if found is None or not found.victims or known is None or known.node is not None:
            return False
        nominations, rules = self._decisions.nominations, self.queue.rules
        if self.queue.holder is not None or nominations.awaits(uid):
            return False
        deadline = self.queue.grant(uid, self._clocks.wall())
        uids = frozenset(each.uid for each in found.victims)
        nominations.keep(waiting.pod, found.node, uids, self._clocks.steady() + rules.lasting)
        await self._tell(waiting.pod, found, deadline)
        return True

    def _fits(self, query: PodQuery, names: Sequence[str]) -> bool:
        return any(self._decisions.screen(query, list(names)).fits)

    async def _tell(self, pod: Pod, found: Eviction, deadline: float) -> None:
        named = ", ".join(each.pod for each in found.victims[:_SHOWN])
        ends = count(len(found.victims), "pod")
        text = f"on node {found.node} until {_stamp(deadline)}, as soon as {ends} end: {named}"
        event = PodEvent(reason="RoomKept", note=f"it has waited long: room is kept {text}")
        self._writer.post_event(pod, event)
        self._log.info("room kept", pod=f"{pod.namespace}/{pod.name}", node=found.node, waits=ends)
        await self._annotate(pod.uid, text)

    async def _annotate(self, uid: str, text: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            await self._writer.annotate_pod(waiting.pod, PodRecord(annotations={KEPT: text}))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
