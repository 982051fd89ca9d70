"""The ledger: who holds what of every card, from events alone.

What the API says of a pod beats what we assumed. A share is freed when its pod has ended or is
gone, never when deletion merely starts. What cannot be read is charged to every card of its node
and reported. Events may repeat, come late or out of order: versions and UIDs decide.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from slicewise.cluster.charges import charge_everywhere, charge_fully, fits
from slicewise.cluster.entry import Entry, Reader, problem_of, says_the_same
from slicewise.cluster.events import (
    Assume,
    CardHealth,
    Confirm,
    Event,
    Expire,
    Extend,
    Forget,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from slicewise.cluster.problems import Problem, Trouble, overcommitted
from slicewise.cluster.store import Store
from slicewise.cluster.usage import Usage
from slicewise.model import (
    Holding,
    Host,
    Node,
    NodeState,
    Pod,
    Request,
    Slice,
    SlicewiseError,
    Snapshot,
    charge,
)

_REMEMBERED: Final = 1 << 16


class Ledger:
    """Events in, immutable snapshots out, at a cost that follows what changed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._store = Store()
        self._entries: dict[str, Entry] = {}
        self._by_node: dict[str, set[str]] = {}
        self._node_versions: dict[str, int] = {}
        self._inventory: dict[str, Node] = {}
        self._ill: dict[str, dict[str, bool]] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._overcommitted: dict[str, tuple[Problem, ...]] = {}
        self._waiting: dict[str, float] = {}
        self.usage = Usage()

    def snapshot(self) -> Snapshot:
        """The cluster as of the last event."""
        return self._store.snapshot()

    def apply(self, event: Event) -> bool:
        """Take in one event; false when it was stale, unknown or, for Assume, does not fit."""
        match event:
            case PodSeen():
                return self._see_pod(event.pod)
            case PodGone():
                return self._end(event.uid)
            case NodeSeen():
                return self._see_node(event)
            case NodeGone():
                return self._lose_node(event)
            case Assume():
                return self._assume(event)
            case Extend():
                return self._extend(event)
            case Confirm():
                return self._confirm(event.uid)
            case Forget():
                return self._forget(event.uid)
            case Expire():
                return self._expire(event.now)
            case CardHealth():
                return self._judge_card(event)

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person, in a stable order."""
        of_pods = [each.problem for each in self._entries.values() if each.problem is not None]
        of_cards = [problem for found in self._overcommitted.values() for problem in found]
        return tuple(sorted((*of_pods, *of_cards)))

    def allocation(self, uid: str) -> tuple[Slice, ...] | None:
        """What the pod is charged on its node's cards, if it holds anything."""
        entry = self._entries.get(uid)
        state = None if entry is None or entry.node is None else self._store.get(entry.node)
        if state is None:
            return None
        held = state.find(uid)
        return None if held is None else held.charges

    def pod(self, uid: str) -> Pod | None:
        """The pod as the API last showed it, if it did."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.pod

    def node_of(self, uid: str) -> str | None:
        """The node on which the pod is counted, bound or assumed."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.node

    def assumption(self, uid: str) -> tuple[Assume, bool] | None:
        """What we decided for the pod and whether the API took it; None when nothing stands."""
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return None
        return entry.assumed, entry.confirmed

    @property
    def waiting(self) -> int:
        """How many decisions the API has not yet taken."""
        return len(self._waiting)

    @property
    def pods(self) -> int:
        """How many pods are known."""
        return len(self._entries)

    def _see_pod(self, pod: Pod) -> bool:
        if pod.uid in self._ended:
            return False
        if pod.phase.terminal:
            return self._end(pod.uid)
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = Entry(pod.uid)
        elif entry.pod is not None:
            if pod.version < entry.pod.version:
                return False
            if says_the_same(entry.pod, pod):
                entry.pod = pod
                return True
        entry.pod = pod
        entry.request, entry.problem = self._read_request(pod)
        if pod.node is not None:
            # The API has spoken: from here on its marks count, not what we assumed of them.
            self._waiting.pop(pod.uid, None)
        self._settle(entry)
        return True

    def _end(self, uid: str) -> bool:
        entry = self._entries.pop(uid, None)
        if uid not in self._ended:
            self._ended[uid] = None
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
        self._waiting.pop(uid, None)
        if entry is None:
            return False
        self._move(entry, None)
        return True

    def _see_node(self, event: NodeSeen) -> bool:
        name = event.node.name
        if event.version < self._node_versions.get(name, 0):
            return False
        self._node_versions[name] = event.version
        self._inventory[name] = event.node
        self._renew(name)
        return True

    def _lose_node(self, event: NodeGone) -> bool:
        if event.version < self._node_versions.get(event.name, 0):
            return False
        self._node_versions[event.name] = event.version
        self._inventory.pop(event.name, None)
        self._ill.pop(event.name, None)
        state = self._store.get(event.name)
        if state is None:
            return False
        for holding in state.holdings:
            self.usage.count(state.node, holding, -1)
        self._store.drop(event.name)
        self._overcommitted.pop(event.name, None)
        return True

    def _judge_card(self, event: CardHealth) -> bool:
        self._ill.setdefault(event.node, {})[event.uuid] = event.healthy
        node = self._inventory.get(event.node)
        if node is None or all(gpu.uuid != event.uuid for gpu in node.gpus):
            return False
        self._renew(event.node)
        return True

    def _renew(self, name: str) -> None:
        """Bring a node's state in line with its inventory and the health of its cards."""
        verdicts = self._ill.get(name, {})
        node = self._inventory[name]
        if verdicts:
            gpus = tuple(
                replace(gpu, healthy=gpu.healthy and verdicts.get(gpu.uuid, True))
                for gpu in node.gpus
            )
            node = replace(node, gpus=gpus)
        state = self._store.get(name)
        if state is not None and state.node == node:
            return
        if state is not None:
            for holding in state.holdings:
                self.usage.count(state.node, holding, -1)
        self._put(NodeState.empty(node))
        for uid in sorted(self._by_node.get(name, ())):
            self._settle(self._entries[uid])

    def _assume(self, event: Assume) -> bool:
        """Count an allocation we decided on, if it fits what is free right now."""
        entry = self._entries.get(event.uid)
        if event.uid in self._ended or (entry and entry.pod and entry.pod.node is not None):
            return False
        state = self._store.get(event.allocation.node)
        if state is None:
            return False
        charges = charge(event.request, event.allocation)
        if not fits(state.release(event.uid), charges):
            return False
        if entry is None:
            entry = self._entries[event.uid] = Entry(event.uid)
        entry.assumed, entry.confirmed = event, False
        self._waiting[event.uid] = event.deadline
        self._move(entry, event.allocation.node)
        self._hold(entry, charges, event.request.host)
        return True

    def _extend(self, event: Extend) -> bool:
        """Move the deadline of an assumption that the API has not yet taken."""
        if event.uid not in self._waiting:
            return False
        self._waiting[event.uid] = event.deadline
        return True

    def _confirm(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return False
        entry.confirmed = True
        self._waiting.pop(uid, None)
        return True

    def _forget(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return False
        entry.assumed, entry.confirmed = None, False
        self._waiting.pop(uid, None)
        if entry.pod is None:
            del self._entries[uid]
            self._move(entry, None)
        else:
            self._settle(entry)
        return True

    def _expire(self, now: float) -> bool:
        late = [uid for uid, deadline in self._waiting.items() if deadline <= now]
        for uid in late:
            self._forget(uid)
        return bool(late)

    def _read_request(self, pod: Pod) -> tuple[Request | None, Problem | None]:
        try:
            return self._reader.read_request(pod), None
        except SlicewiseError as error:
            return None, problem_of(pod, Trouble.UNREADABLE_REQUEST, str(error))

    def _settle(self, entry: Entry) -> None:
        """Work out where the pod is and what it costs there, and charge exactly that."""
        pod = entry.pod
        if pod is not None and pod.node is not None:
            self._move(entry, pod.node)
            self._charge_bound(entry, pod)
            return
        if entry.assumed is not None:
            self._move(entry, entry.assumed.allocation.node)
            assumed = entry.assumed
            self._hold(entry, charge(assumed.request, assumed.allocation), assumed.request.host)
            return
        target = None if pod is None else self._reader.read_target(pod)
        self._move(entry, target)
        if pod is not None and target is not None:
            self._charge_bound(entry, pod)

    def _charge_bound(self, entry: Entry, pod: Pod) -> None:
        """Charge a pod by its own marks; by every card of its node if they cannot be read."""
        state = None if entry.node is None else self._store.get(entry.node)
        if state is None:
            return
        if entry.request is None:
            self._hold(entry, charge_fully(state.node), Host(), certain=False)
            return
        request = entry.request
        if not request.containers:
            self._hold(entry, (), request.host)
            return
        if entry.problem is not None and entry.problem.trouble != Trouble.UNREADABLE_REQUEST.value:
            entry.problem = None
        try:
            allocation = self._reader.read_allocation(pod, state.node, request)
        except SlicewiseError as error:
            entry.problem = problem_of(pod, Trouble.UNREADABLE_ALLOCATION, str(error))
            allocation = None
        else:
            if allocation is None and entry.assumed is not None:
                allocation = entry.assumed.allocation
            if allocation is None:
                entry.problem = problem_of(
                    pod, Trouble.MISSING_ALLOCATION, "no mark says which cards it was given"
                )
        if allocation is None or allocation.node != state.node.name:
            self._hold(entry, charge_everywhere(request, state.node), request.host, certain=False)
        else:
            self._hold(entry, charge(request, allocation), request.host)

    def _hold(
        self, entry: Entry, charges: tuple[Slice, ...], host: Host, certain: bool = True
    ) -> None:
        state = None if entry.node is None else self._store.get(entry.node)
        if state is None:
            return
        about = entry.pod or entry.assumed
        assert about is not None
        holding = Holding(
            uid=entry.uid,
            namespace=about.namespace,
            name=about.name,
            charges=charges,
            host=host,
            priority=about.priority,
            certain=certain,
        )
        before = state.find(entry.uid)
        if before == holding:
            return
        if before is not None:
            self.usage.count(state.node, before, -1)
        self.usage.count(state.node, holding, 1)
        self._put(state.hold(holding))

    def _move(self, entry: Entry, node: str | None) -> None:
        """Note which node the pod is on, and free what it held on another."""
        if entry.node == node:
            return
        if entry.node is not None:
            self._by_node[entry.node].discard(entry.uid)
            self._release(entry.node, entry.uid)
        entry.node = node
        if node is not None:
            self._by_node.setdefault(node, set()).add(entry.uid)

    def _release(self, node: str, uid: str) -> None:
        state = self._store.get(node)
        if state is None:
            return
        held = state.find(uid)
        if held is not None:
            self.usage.count(state.node, held, -1)
            self._put(state.release(uid))

    def _put(self, state: NodeState) -> None:
        self._store.put(state)
        found = overcommitted(state)
        if found:
            self._overcommitted[state.node.name] = found
        else:
            self._overcommitted.pop(state.node.name, None)
