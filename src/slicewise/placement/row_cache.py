"""Values derived from table rows, recomputed only for rows that changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicewise.model import NodeState
from slicewise.placement.tables import Ints, NodeTables


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
            self._rebuild(np.unique(np.asarray(tables.changes[self._seen :], dtype=np.int64)))
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
