"""One step of a decision: a group of shares, the GPUs that could take them, and for whom."""

from dataclasses import dataclass

import numpy as np

from slicewise.placement.groups import Group
from slicewise.placement.tables import Bools, Ints, NodeTables, TableView
from slicewise.placement.workload import Workload


@dataclass(slots=True)
class ScoringInput:
    """What scoring functions get, to score each row or each GPU for this group.

    `group` is None for a pod without GPUs; `ok` marks the GPUs with room for one share.
    """

    tables: NodeTables
    view: TableView
    group: Group | None
    cpu: int
    ok: Bools  # (nodes, gpus)
    feasible: Bools  # (nodes,)
    workload: Workload
    seed: int = 0
    salt: str = ""

    @property
    def fresh(self) -> bool:
        """Whether the view is the tables themselves, so that what was cached for them holds."""
        return self.view is self.tables.view

    @property
    def demand(self) -> int:
        return 0 if self.group is None else self.group.demand


def tightest(scoring: ScoringInput) -> Ints:
    """The least free percent among the GPUs that fit, per row; above 100 where none fits."""
    room = np.where(scoring.ok, scoring.view.free_cores, 1 << 30)
    least: Ints = room.min(axis=1, initial=1 << 30)
    return least
