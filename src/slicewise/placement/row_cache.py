"""Values derived from table rows, recomputed only for rows that changed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slicewise.model import MAX_GPUS_PER_NODE, NodeState
from slicewise.placement.tables import Ints, NodeTables

_UUIDS: Final = "uuids"


class RowCache:
    """Remembers which rows of the tables a derived value has seen."""

    def __init__(self, tables: NodeTables, rebuild: Callable[[Ints], None]) -> None:
        self._tables = tables
        self._rebuild = rebuild
        self._epoch = -1
        self._seen = 0

    def refresh(self) -> None:
        """Recompute the rows that changed since the last call, all of them if need be."""
        tables = self._tables
        if self._epoch != tables.epoch:
            self._epoch = tables.epoch
            self._rebuild(np.arange(len(tables.names), dtype=np.int64))
        elif self._seen < len(tables.changes):
            changed = sorted(set(tables.changes[self._seen :]))
            self._rebuild(np.array(changed, dtype=np.int64))
        self._seen = len(tables.changes)


class RowValues:
    """One number per row, read from the state of its node."""

    def __init__(self, tables: NodeTables, dtype: Any, read: Callable[[NodeState], int]) -> None:
        self._tables = tables
        self._read = read
        self._values: NDArray[Any] = np.zeros(0, dtype=dtype)
        self._cache = RowCache(tables, self._rebuild)

    def current(self) -> NDArray[Any]:
        self._cache.refresh()
        return self._values

    def _rebuild(self, rows: Ints) -> None:
        states = self._tables.states
        if len(self._values) != len(states):
            self._values = np.zeros(len(states), dtype=self._values.dtype)
        self._values[rows] = [self._read(states[row]) for row in rows.tolist()]


class UuidIndex:
    """Rows and positions of GPUs by UUID, so that nobody looks through all of them."""

    def __init__(self, tables: NodeTables) -> None:
        self._tables = tables
        self._at: dict[str, int] = {}
        # Where UUIDs are that several GPUs have, or had.
        self._more: dict[str, set[int]] = {}
        self._cache = RowCache(tables, self._rebuild)

    @classmethod
    def of(cls, tables: NodeTables) -> "UuidIndex":
        """The index of these tables."""
        known = tables.derived.get(_UUIDS)
        if not isinstance(known, cls):
            known = tables.derived[_UUIDS] = cls(tables)
        return known

    def refresh(self) -> None:
        """Follow the tables."""
        self._cache.refresh()

    def find(self, uuids: Iterable[str]) -> Iterator[tuple[int, int]]:
        """Row and position of every GPU with one of these UUIDs."""
        self._cache.refresh()
        for uuid in uuids:
            places = {self._at.get(uuid, -1), *self._more.get(uuid, ())}
            for row, at in (divmod(place, MAX_GPUS_PER_NODE) for place in places if place >= 0):
                gpus = self._tables.states[row].node.gpus
                # What a node had before is still in the index.
                if at < len(gpus) and gpus[at].uuid == uuid:
                    yield row, at

    def _rebuild(self, rows: Ints) -> None:
        if len(rows) == len(self._tables.names):
            self._at.clear()
            self._more.clear()
        known = self._at
        for row in rows.tolist():
            place = row * MAX_GPUS_PER_NODE
            for at, gpu in enumerate(self._tables.states[row].node.gpus):
                if known.setdefault(gpu.uuid, place + at) != place + at:
                    self._more.setdefault(gpu.uuid, set()).add(place + at)
