"""The rows of nodes and their sums, kept in step with snapshots at the cost of what changed."""

from collections.abc import Iterable, Mapping

from slicewise.dashboard.rows import SILENT, ModelNumbers, NodeTotals, sum_up, write_row
from slicewise.dashboard.tables import PageTables
from slicewise.model import Chunk, NodeState, Snapshot


class NodeRows:
    """A row for every node that has GPUs, and what they add up to."""

    def __init__(self, tables: PageTables) -> None:
        self.sums = NodeTotals()
        self.models = ModelNumbers()
        self._tables = tables
        self._flags: dict[str, int] = {}
        self._silent: frozenset[str] = frozenset()
        self._guessed: dict[str, str] = {}
        self._stale: set[str] = set()
        self._chunks: tuple[Chunk, ...] = ()
        self._summed: dict[str, NodeTotals] = {}

    @property
    def guessing(self) -> bool:
        """Whether there are pods whose GPUs are nowhere recorded."""
        return bool(self._guessed)

    def flag(self, name: str, flags: int) -> None:
        if self._flags.get(name, 0) != flags:
            self._flags[name] = flags
            self._stale.add(name)

    def forget(self, name: str) -> None:
        self._flags.pop(name, None)

    def silence(self, names: Iterable[str]) -> None:
        """Exactly these nodes' agents are not heard."""
        silent = frozenset(names)
        self._stale |= silent ^ self._silent
        self._silent = silent

    def guess(self, pods: Mapping[str, str]) -> None:
        """Exactly these pods, by UID and node, have GPUs that are nowhere recorded."""
        self._stale.update(node for _, node in pods.items() ^ self._guessed.items())
        self._guessed = dict(pods)

    def follow(self, snapshot: Snapshot) -> None:
        """Write the rows that are not as the snapshot has them."""
        gone: set[str] = set()
        before = self._chunks
        if snapshot.chunks is not before:
            for at in range(max(len(before), len(snapshot.chunks))):
                old = before[at] if at < len(before) else ()
                new = snapshot.chunks[at] if at < len(snapshot.chunks) else ()
                if old is not new:
                    gone |= self._follow_chunk(old, new)
            self._chunks = snapshot.chunks
        for name in gone - snapshot.slots.keys():
            self._drop(name)
        for name in self._stale:
            state = snapshot.get(name)
            if state is not None:
                self._put(state)
        self._stale.clear()
        self._tables.replace("models", self.models.rows())

    def _follow_chunk(self, old: Chunk, new: Chunk) -> set[str]:
        """Write the states that changed; the names of those that are no longer here."""
        gone = set()
        for at in range(max(len(old), len(new))):
            was = old[at] if at < len(old) else None
            state = new[at] if at < len(new) else None
            if was is state:
                continue
            if was is not None and (state is None or state.node.name != was.node.name):
                gone.add(was.node.name)
            if state is not None:
                self._put(state)
        return gone

    def _put(self, state: NodeState) -> None:
        name = state.node.name
        if not state.node.gpus:
            self._drop(name)
            return
        flags = self._flags.get(name, 0) | SILENT * (name in self._silent)
        before, after = self._summed.get(name), sum_up(state, flags)
        if before is not None:
            self.sums.count(before, -1)
        self.sums.count(after)
        self._summed[name] = after
        self._tables.put("nodes", name, write_row(state, flags, self.models, self._guessed))

    def _drop(self, name: str) -> None:
        before = self._summed.pop(name, None)
        if before is not None:
            self.sums.count(before, -1)
            self._tables.drop("nodes", name)
            self._tables.drop("usage", name)
