"""Carries a plan of moves out, pod by pod, and stops as soon as the cluster is not as planned.

Before each eviction the rest of the plan is tried on the cluster as it is, and the room is kept
for the pod that it is for. A pod is evicted only when the one before runs again.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from slicewise.kube.client import Client
from slicewise.kube.eviction.evictions import evict_pod
from slicewise.kube.eviction.pod_facts import PodFacts, list_pod_facts
from slicewise.kube.outcomes import PodName, WriteStatus
from slicewise.model import Pod, SlicewiseError
from slicewise.placement.defrag import DefragPlan
from slicewise.state.defrag.defrag_view import DefragView

T = TypeVar("T")
_POLL_SECONDS: Final = 0.5


class PlanStoppedError(SlicewiseError):
    """The cluster is not as the plan has it, so nobody else is evicted."""


class RoomKeeper(Protocol):
    """Keeps room for a pod while others leave, in the extender that the scheduler asks."""

    async def __call__(self, pod: Pod, node: str, victims: Sequence[str]) -> None:
        """Keep what is free on the node for the pod, and what these pods leave."""


@dataclass(frozen=True, slots=True)
class PlanEdges:
    """What a plan is carried out with."""

    client: Client
    look: Callable[[frozenset[str]], Awaitable[DefragView]]
    """Reads the cluster again; whether these pods may be evicted is left to their budgets."""
    keep: RoomKeeper
    say: Callable[[str], None]
    seconds: float = 300.0
    """How long one move, and the pod itself at the end, may take."""
    clock: Callable[[], float] = time.monotonic


class PlanRunner:
    """Carries one plan out for one pod that waits."""

    def __init__(self, edges: PlanEdges, pod: Pod, plan: DefragPlan) -> None:
        self._edges = edges
        self._pod = pod
        self._name = f"{pod.namespace}/{pod.name}"
        self._left = [move.uid for move in plan.moves]
        self._goal = plan.room.node
        self._names = {move.uid: move.pod for move in plan.moves}

    async def run(self) -> str:
        """Make every move that is needed; where the pod then is. Raises PlanStoppedError."""
        while self._left:
            view = await self._edges.look(frozenset(self._left))
            if (node := self._placed(view)) is not None:
                return node
            self._check(view)
            await self._keep(view)
            await self._move(view, self._left[0])
            self._left.pop(0)
        return await self._wait_placed()

    def _placed(self, view: DefragView) -> str | None:
        found = view.reading.pods.get(self._pod.uid)
        if found is None or found.deleting:
            raise PlanStoppedError(f"{self._name} is gone, so no room is needed any more")
        return found.node

    def _check(self, view: DefragView) -> None:
        """Raise unless the rest of the plan, tried on the cluster as it is, still makes room."""
        for uid in self._left:
            if uid not in view.movable:
                why = "is gone" if uid not in view.reading.pods else "may not be moved any more"
                raise PlanStoppedError(f"{self._names[uid]} {why}")
        simulator = view.simulate(view.ask(self._pod))
        room = simulator.find_room(self._goal, self._victims(view))
        if room is None or simulator.run(self._left, room) is None:
            names = ", ".join(self._names[uid] for uid in self._left)
            raise PlanStoppedError(
                f"moving {names} does not make room on node {self._goal} any more: "
                "the cluster has changed since the plan was made"
            )

    def _victims(self, view: DefragView) -> list[str]:
        """Those that are yet to leave the node that the pod is to have."""
        return [uid for uid in self._left if view.movable[uid].node == self._goal]

    async def _keep(self, view: DefragView) -> None:
        victims = self._victims(view)
        if victims:
            # Without any, what they have left is kept already.
            await self._edges.keep(self._pod, self._goal, victims)

    async def _move(self, view: DefragView, uid: str) -> None:
        old = view.reading.pods[uid]
        known = {each.uid for each in view.reading.pods.values() if each.owner == old.owner}
        await self._evict(old)
        new = await self._wait_successor(view, old, known)
        self._edges.say(f"{self._names[uid]} moved from node {old.node} to node {new.node}")

    async def _evict(self, pod: PodFacts) -> None:
        end = self._edges.clock() + self._edges.seconds
        while True:
            name = PodName(pod.uid, pod.namespace, pod.name)
            outcome = await evict_pod(self._edges.client, name)
            if outcome.status is WriteStatus.DONE:
                return
            if outcome.status is not WriteStatus.BLOCKED or self._edges.clock() >= end:
                raise PlanStoppedError(
                    f"{pod.namespace}/{pod.name} was not evicted: {outcome.detail}"
                )
            await self._edges.client.sleep(_POLL_SECONDS)

    async def _wait_successor(self, view: DefragView, old: PodFacts, known: set[str]) -> PodFacts:
        """The pod that its controller made in its place, once it runs and the ledger has it."""
        ledger = view.queries.state.ledger

        async def find() -> PodFacts | None:
            pods = await list_pod_facts(self._edges.client, old.namespace)
            if any(each.uid == old.uid for each in pods) or ledger.pod(old.uid) is not None:
                return None
            made = (each for each in pods if each.owner == old.owner and each.uid not in known)
            running = next((each for each in made if each.running), None)
            return running if running and ledger.allocation(running.uid) else None

        found = await self._wait(find)
        if found is None:
            raise PlanStoppedError(
                f"{old.namespace}/{old.name} was evicted from node {old.node}, and no pod of its "
                f"controller runs in its place after {self._edges.seconds:.0f} s"
            )
        return found

    async def _wait_placed(self) -> str:
        async def find() -> str | None:
            pods = await list_pod_facts(self._edges.client, self._pod.namespace)
            return next((each.node for each in pods if each.uid == self._pod.uid), None)

        found = await self._wait(find)
        if found is None:
            raise PlanStoppedError(
                f"all moves are made, and {self._name} has no node after "
                f"{self._edges.seconds:.0f} s, though there is room on node {self._goal}"
            )
        return found

    async def _wait(self, find: Callable[[], Awaitable[T | None]]) -> T | None:
        """What is found before time is up."""
        end = self._edges.clock() + self._edges.seconds
        while (found := await find()) is None and self._edges.clock() < end:
            await self._edges.client.sleep(_POLL_SECONDS)
        return found
