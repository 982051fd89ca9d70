"""Node states in copy-on-write chunks: a change copies one chunk, a snapshot their list."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from slicewise.model import CHUNK, Chunk, NodeState, Snapshot, UsageTotals


class NodeStateStore:
    """The current state of every node, ready to be handed out as an immutable snapshot."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._slots: dict[str, int] = {}
        self._seen_slots: Mapping[str, int] | None = None
        self._holes: list[int] = []
        self._snapshot: Snapshot | None = Snapshot()
        self.usage = UsageTotals()
        """What namespaces hold; it changes only together with a node or a reservation."""

    def __iter__(self) -> Iterator[NodeState]:
        return (state for chunk in self._chunks for state in chunk if state is not None)

    def get(self, name: str) -> NodeState | None:
        slot = self._slots.get(name)
        return None if slot is None else self._chunks[slot // CHUNK][slot % CHUNK]

    def put(self, state: NodeState) -> None:
        slot = self._slots.get(state.node.name)
        if slot is None:
            slot = self._new_slot()
            self._own_slots()[state.node.name] = slot
        self._write(slot, state)

    def drop(self, name: str) -> None:
        slot = self._own_slots().pop(name, None)
        if slot is not None:
            self._write(slot, None)
            self._holes.append(slot)

    def count_reserved(self, namespace: str, percents: Mapping[str, int], sign: int) -> None:
        """Count what is reserved for a pod that is on no node yet."""
        self.usage = self.usage.reserve(namespace, percents, sign)
        self._snapshot = None

    def snapshot(self) -> Snapshot:
        """All states as they are now; the same value until something changes."""
        if self._snapshot is None:
            if self._seen_slots is None:
                self._seen_slots = MappingProxyType(self._slots)
            self._snapshot = Snapshot(tuple(self._chunks), self._seen_slots, self.usage)
        return self._snapshot

    def _own_slots(self) -> dict[str, int]:
        """The slots, copied if a snapshot still looks at them."""
        if self._seen_slots is not None:
            self._slots = dict(self._slots)
            self._seen_slots = None
        self._snapshot = None
        return self._slots

    def _new_slot(self) -> int:
        if self._holes:
            return self._holes.pop()
        if not self._chunks or len(self._chunks[-1]) == CHUNK:
            self._chunks.append(())
        self._chunks[-1] = (*self._chunks[-1], None)
        return (len(self._chunks) - 1) * CHUNK + len(self._chunks[-1]) - 1

    def _write(self, slot: int, state: NodeState | None) -> None:
        at = slot // CHUNK
        chunk = list(self._chunks[at])
        chunk[slot % CHUNK] = state
        self._chunks[at] = tuple(chunk)
        self._snapshot = None
