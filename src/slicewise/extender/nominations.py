"""Keeps the room that preemption makes for the pod it is made for.

Pods that leave for one pod are no room for another. Once the node is known, the free parts of the
GPUs that the pod will get are reserved for it, and more with each pod that ends, in the same step,
until the pod is bound or gone or its time is up.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.cluster import Hold
from slicewise.extender.binder import Clock
from slicewise.model import NodeState, Pod, Request, SlicewiseError
from slicewise.placement import keep_room
from slicewise.state.queries import PodQueries

# A scheduler backs off for 10 seconds at most, and binds take a few.
NOMINATED_SECONDS: Final = 60.0
# Kubelets end pods a little late, and clocks differ.
_OVERDUE_SECONDS: Final = 60
_MOST: Final = 256


@dataclass(slots=True)
class _Nomination:
    """A pod, and by node the pods whose room is meant for it."""

    pod: Pod
    victims: dict[str, frozenset[str]]
    deadline: float
    chosen: str | None = None
    """The node where room is being made; None while the scheduler has not shown its choice."""
    left: frozenset[str] = frozenset()
    """Those of the chosen node's victims that had not ended when it was last looked at."""
    state: NodeState | None = None
    """The chosen node right after the last reservation there."""
    held_until: float = 0.0
    fixed: bool = False
    """Whether it ends at its deadline whoever leaves, and keeps no victims from others."""
    seen: bool = False
    """Whether the pod itself was seen, so that its absence says that it is gone."""


class Nominations:
    """The pods that others leave for, and what is kept for each."""

    def __init__(
        self,
        queries: PodQueries,
        clock: Clock,
        seconds: float = NOMINATED_SECONDS,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._queries = queries
        self._clock = clock
        self._seconds = seconds
        self._wall = wall
        self._by_uid: dict[str, _Nomination] = {}

    def nominate(
        self, pod: Pod, victims: Mapping[str, Iterable[str]], chosen: str | None = None
    ) -> None:
        """Note whose room is meant for a pod, by node, in place of what was noted before.

        With a chosen node, what is free there of the pod's GPUs is kept from now on.
        """
        snapshot = self._queries.state.snapshot()
        holders = {
            node: _hold_gpus(state, frozenset(uids))
            for node, uids in victims.items()
            if (state := snapshot.get(node)) is not None
        }
        named = {node: uids for node, uids in holders.items() if uids}
        self._by_uid.pop(pod.uid, None)
        if named and len(self._by_uid) < _MOST:
            made = _Nomination(pod, named, self._clock() + self._seconds, chosen)
            self._by_uid[pod.uid] = made
            self._settle(made)

    def keep(self, pod: Pod, node: str, awaited: frozenset[str], deadline: float) -> None:
        """Keep what is free and what these pods leave for a pod, and no longer than that."""
        made = _Nomination(pod, {node: awaited}, deadline, node, fixed=True)
        self._by_uid[pod.uid] = made
        self._settle(made)

    def release(self, uid: str) -> None:
        """Give back what was kept for a pod until a deadline."""
        nomination = self._by_uid.get(uid)
        if nomination is not None and nomination.fixed:
            del self._by_uid[uid]
            ledger = self._queries.state.ledger
            ledger.apply(Hold(nomination.pod, Request(), (), self._clock()))

    def taken(self, uid: str) -> frozenset[str]:
        """Victims whose room is meant for other pods than this one."""
        self._drop_late()
        return frozenset(
            victim
            for nominee, nomination in self._by_uid.items()
            if nominee != uid and not nomination.fixed
            for named in nomination.victims.values()
            for victim in named
        )

    def awaits(self, uid: str) -> bool:
        """Whether nothing more is needed for the pod than that pods end which are leaving."""
        self._drop_late()
        nomination = self._by_uid.get(uid)
        if nomination is None or nomination.chosen is None:
            return False
        pods = map(self._queries.state.ledger.pod, nomination.victims[nomination.chosen])
        return all(pod is None or self._leaves(pod) for pod in pods)

    def leaving(self, state: NodeState, uid: str) -> frozenset[str]:
        """The pods on this node that are leaving, and not for another pod than this one."""
        pods = (self._queries.state.ledger.pod(each.uid) for each in state.holdings)
        found = frozenset(pod.uid for pod in pods if pod is not None and self._leaves(pod))
        return found - self.taken(uid) if found else found

    def find_deleting(self, state: NodeState) -> frozenset[str]:
        """The pods on this node whose deletion has begun, however long ago."""
        pods = (self._queries.state.ledger.pod(each.uid) for each in state.holdings)
        return frozenset(pod.uid for pod in pods if pod is not None and pod.deleting)

    def on_nodes(self, changes: Sequence[object]) -> None:
        """Nothing: what is kept depends on pods alone."""

    def on_pods(self, changes: Sequence[object]) -> None:  # noqa: ARG002 the ledger has them
        """Reserve what victims have left, before anybody else is asked about."""
        if self._by_uid:
            self.renew()

    def renew(self) -> None:
        """End what is over, and keep the rest for as long as pods are leaving."""
        self._drop_late()
        for nomination in list(self._by_uid.values()):
            self._settle(nomination)

    def _leaves(self, pod: Pod) -> bool:
        """Whether the pod is being deleted, and not long past the time when it should be gone."""
        return pod.deleting and (not pod.ends or self._wall() < pod.ends + _OVERDUE_SECONDS)

    def _drop_late(self) -> None:
        ledger, now = self._queries.state.ledger, self._clock()
        for uid, nomination in list(self._by_uid.items()):
            pod = ledger.pod(uid)
            over = nomination.seen if pod is None else pod.deleting or pod.node is not None
            nomination.seen = nomination.seen or pod is not None
            if over or nomination.deadline <= now:
                del self._by_uid[uid]

    def _settle(self, nomination: _Nomination) -> None:
        """Renew what is kept where the victims leave."""
        ledger = self._queries.state.ledger
        if nomination.chosen is None:
            nomination.chosen = self._find_chosen(nomination)
        node = nomination.chosen
        if node is None or ledger.assumption(nomination.pod.uid) is not None:
            return
        named = nomination.victims[node]
        nomination.victims = {node: named}
        pods = {uid: pod for uid in named if (pod := ledger.pod(uid)) is not None}
        gone = pods.keys() != nomination.left
        nomination.left = frozenset(pods)
        if not nomination.fixed and (gone or any(map(self._leaves, pods.values()))):
            nomination.deadline = self._clock() + self._seconds
        changed = ledger.snapshot().get(node) is not nomination.state
        if changed or nomination.held_until < nomination.deadline - self._seconds / 2:
            self._reserve(nomination, node)
            nomination.state = ledger.snapshot().get(node)

    def _find_chosen(self, nomination: _Nomination) -> str | None:
        """The node that the scheduler has chosen: one of its victims leaves."""
        ledger = self._queries.state.ledger
        for node, named in nomination.victims.items():
            pods = map(ledger.pod, named)
            if any(pod is None or pod.deleting for pod in pods):
                return node
        return None

    def _reserve(self, nomination: _Nomination, node: str) -> None:
        try:
            query = self._queries.build(nomination.pod)
        except SlicewiseError:
            # Not leading, or not current: nothing is reserved then, and nothing decided either.
            return
        kept = keep_room(query.planner, query.snapshot, query.wanted, node, nomination.left)
        if kept is not None:
            given = (kept.allocation,) if kept.allocation.containers else ()
            hold = Hold(nomination.pod, kept.request, given, nomination.deadline)
            self._queries.state.ledger.apply(hold)
            nomination.held_until = nomination.deadline


def _hold_gpus(state: NodeState, uids: frozenset[str]) -> frozenset[str]:
    """Those of these pods that hold GPUs of the node."""
    return frozenset(each.uid for each in state.holdings if each.uid in uids and each.charges)
