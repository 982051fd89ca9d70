"""Which pod is on which node and what it is charged there; the sums follow by themselves.

Nodes with unassigned pods, whose GPUs are ours to choose, are dirty whenever anything on them
changes.
"""

from slicewise.cluster.entry import PodEntry
from slicewise.cluster.node_store import NodeStateStore
from slicewise.cluster.problems import Problem, overcommitted
from slicewise.model import Holding, Host, Node, NodeState, Slice


class HoldingIndex:
    """Holdings by node, and the running sums over them."""

    def __init__(self) -> None:
        self.store = NodeStateStore()
        self.unassigned: dict[str, set[str]] = {}
        """The pods on each node whose GPUs are ours to choose."""
        self.dirty: set[str] = set()
        """The nodes with such pods where something changed."""
        self._by_node: dict[str, set[str]] = {}
        self._overcommitted: dict[str, tuple[Problem, ...]] = {}

    def problems(self) -> list[Problem]:
        return [problem for found in self._overcommitted.values() for problem in found]

    def overcommitted(self) -> tuple[str, ...]:
        """The nodes with a GPU on which more is held than there is."""
        return tuple(self._overcommitted)

    def pods_on(self, node: str) -> list[str]:
        """The UIDs of the pods and claims on a node, known or not, in a stable order."""
        return sorted(self._by_node.get(node, ()))

    def renew(self, node: Node) -> bool:
        """Put the node in empty, unless it is there just so."""
        state = self.store.get(node.name)
        if state is not None and state.node == node:
            return False
        self._uncount(state)
        self._put(NodeState.empty(node))
        return True

    def drop(self, name: str) -> bool:
        state = self.store.get(name)
        self._uncount(state)
        self.store.drop(name)
        self._overcommitted.pop(name, None)
        if name in self.unassigned:
            self.dirty.add(name)
        return state is not None

    def mark_unassigned(self, entry: PodEntry) -> None:
        """Note that the pod's GPUs are ours to choose."""
        assert entry.node is not None
        self.unassigned.setdefault(entry.node, set()).add(entry.uid)
        self.dirty.add(entry.node)

    def mark_assigned(self, entry: PodEntry) -> None:
        """Note that the pod's GPUs are not ours to choose any more."""
        if entry.node is not None and entry.node in self.unassigned:
            self.unassigned[entry.node].discard(entry.uid)
            if not self.unassigned[entry.node]:
                del self.unassigned[entry.node]

    def hold(
        self, entry: PodEntry, charges: tuple[Slice, ...], host: Host, gpus: int | None = None
    ) -> None:
        """Charge the pod exactly this on its node, in place of what it was charged.

        A pod that is charged on every GPU, because it is not known on which it is, has at most
        so many `gpus`.
        """
        state = None if entry.node is None else self.store.get(entry.node)
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
            certain=gpus is None,
            gpus=gpus or 0,
            tentative=entry.tentative,
        )
        self._replace(state, holding)

    def hold_claim(self, node: str, holding: Holding) -> None:
        """Charge a claim exactly this on a node, known or not."""
        self._by_node.setdefault(node, set()).add(holding.uid)
        state = self.store.get(node)
        if state is not None:
            self._replace(state, holding)

    def release_claim(self, node: str, uid: str) -> None:
        """Free what a claim held on a node."""
        self._by_node.get(node, set()).discard(uid)
        self._release(node, uid)

    def _replace(self, state: NodeState, holding: Holding) -> None:
        before = state.find(holding.uid)
        if before == holding:
            return
        usage = self.store.usage
        if before is not None:
            usage = usage.remove(state.node, before)
        self.store.usage = usage.add(state.node, holding)
        self._put(state.hold(holding))

    def move(self, entry: PodEntry, node: str | None) -> None:
        """Note which node the pod is on, and free what it held on another."""
        if entry.node == node:
            return
        self.mark_assigned(entry)
        if entry.node is not None:
            self._by_node[entry.node].discard(entry.uid)
            self._release(entry.node, entry.uid)
        entry.node = node
        if node is not None:
            self._by_node.setdefault(node, set()).add(entry.uid)

    def _release(self, node: str, uid: str) -> None:
        state = self.store.get(node)
        if state is None:
            return
        held = state.find(uid)
        if held is not None:
            self.store.usage = self.store.usage.remove(state.node, held)
            self._put(state.release(uid))

    def _uncount(self, state: NodeState | None) -> None:
        for holding in () if state is None else state.holdings:
            assert state is not None
            self.store.usage = self.store.usage.remove(state.node, holding)

    def _put(self, state: NodeState) -> None:
        name = state.node.name
        self.store.put(state)
        if name in self.unassigned:
            self.dirty.add(name)
        found = overcommitted(state)
        if found:
            self._overcommitted[name] = found
        else:
            self._overcommitted.pop(name, None)
