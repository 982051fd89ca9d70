"""The cluster at one moment: an immutable value that shares its unchanged parts.

Node states stand in chunks; a change copies one chunk and the list of chunks, nothing else.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from slicewise.model.allocation import Slice
from slicewise.model.amounts import FULL
from slicewise.model.fits import AskedAmounts, fits, has_room
from slicewise.model.gpu import Node
from slicewise.model.holding import Holding, UsageTotals

CHUNK: Final = 64


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and who holds what of it; the sums are in the order of the node's GPUs."""

    node: Node
    holdings: tuple[Holding, ...]
    used_cores: tuple[int, ...]
    used_memory: tuple[int, ...]
    cpu: int = 0
    host_memory: int = 0

    @classmethod
    def empty(cls, node: Node) -> "NodeState":
        zeros = (0,) * len(node.gpus)
        return cls(node, (), zeros, zeros)

    def find(self, uid: str) -> Holding | None:
        """What that pod holds here, if it does."""
        at = _find(self.holdings, uid)
        if at < len(self.holdings) and self.holdings[at].uid == uid:
            return self.holdings[at]
        return None

    def hold(self, holding: Holding) -> "NodeState":
        """The node with one more pod on it, or with that pod's holding replaced."""
        at = _find(self.holdings, holding.uid)
        if at < len(self.holdings) and self.holdings[at].uid == holding.uid:
            return self.release(holding.uid).hold(holding)
        held = (*self.holdings[:at], holding, *self.holdings[at:])
        return self._charge(held, holding, 1)

    def release(self, uid: str) -> "NodeState":
        at = _find(self.holdings, uid)
        if at == len(self.holdings) or self.holdings[at].uid != uid:
            return self
        held = self.holdings[:at] + self.holdings[at + 1 :]
        return self._charge(held, self.holdings[at], -1)

    def renew(self, node: Node) -> "NodeState":
        """The same holdings on a node whose GPUs or sizes changed."""
        if node == self.node:
            return self
        state = NodeState.empty(node)
        for holding in self.holdings:
            state = state.hold(holding)
        return state

    def free_cores(self, at: int) -> int:
        """Percent of compute free on the GPU at this position; negative if overcommitted."""
        return FULL - self.used_cores[at]

    def free_memory(self, at: int) -> int:
        """MiB free on the GPU at this position; negative if overcommitted."""
        return self.node.gpus[at].memory - self.used_memory[at]

    def untouched(self, at: int) -> bool:
        """Whether nobody holds any part of the GPU at this position."""
        return self.used_cores[at] == 0 and self.used_memory[at] == 0

    def fits(self, at: int, asked: AskedAmounts) -> bool:
        """Whether a share may be allocated on the GPU at this position."""
        return fits(asked, self.node.gpus[at], self.free_cores(at), self.free_memory(at))

    def has_room(self, charge: Slice) -> bool:
        """Whether the GPU that is charged is there and has this much free, usable or not."""
        at = self.node.position(charge.gpu)
        return at is not None and has_room(
            charge.cores, charge.memory, self.free_cores(at), self.free_memory(at)
        )

    def _charge(self, held: tuple[Holding, ...], holding: Holding, sign: int) -> "NodeState":
        cores, memory = list(self.used_cores), list(self.used_memory)
        for piece in holding.charges:
            at = self.node.position(piece.gpu)
            if at is not None:
                cores[at] += sign * piece.cores
                memory[at] += sign * piece.memory
        host = holding.host
        return NodeState(
            self.node,
            held,
            tuple(cores),
            tuple(memory),
            self.cpu + sign * host.cpu,
            self.host_memory + sign * host.memory,
        )


_uid = attrgetter("uid")


def _find(holdings: tuple[Holding, ...], uid: str) -> int:
    return bisect_left(holdings, uid, key=_uid)


Chunk = tuple[NodeState | None, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every node's state, and what namespaces hold in all.

    `slots` gives each node name its place in the chunks.
    """

    chunks: tuple[Chunk, ...] = ()
    slots: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    usage: UsageTotals = field(default_factory=UsageTotals)

    def __iter__(self) -> Iterator[NodeState]:
        return (state for chunk in self.chunks for state in chunk if state is not None)

    def __len__(self) -> int:
        return len(self.slots)

    def __contains__(self, name: object) -> bool:
        return name in self.slots

    def get(self, name: str) -> NodeState | None:
        slot = self.slots.get(name)
        return None if slot is None else self.chunks[slot // CHUNK][slot % CHUNK]

    def hold(self, name: str, holding: Holding) -> "Snapshot":
        """The cluster with one more pod on this node, or with that pod's holding replaced."""
        cluster = self.release(name, holding.uid)
        state = cluster.get(name)
        if state is None:
            return cluster
        return cluster._put(state.hold(holding), cluster.usage.add(state.node, holding))

    def release(self, name: str, uid: str) -> "Snapshot":
        state = self.get(name)
        held = None if state is None else state.find(uid)
        if state is None or held is None:
            return self
        return self._put(state.release(uid), self.usage.remove(state.node, held))

    def _put(self, state: NodeState, usage: UsageTotals) -> "Snapshot":
        at, within = divmod(self.slots[state.node.name], CHUNK)
        chunk = self.chunks[at]
        changed = (*chunk[:within], state, *chunk[within + 1 :])
        chunks = (*self.chunks[:at], changed, *self.chunks[at + 1 :])
        return replace(self, chunks=chunks, usage=usage)
