"""Values derived from table rows, recomputed only for rows that changed."""

from collections.abc import Callable

import numpy as np

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
