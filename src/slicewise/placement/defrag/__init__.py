"""Which pods to move so that another fits: plans of few moves, each of which is possible."""

from slicewise.placement.defrag.move_search import DefragOutcome, SearchLimits, plan_moves
from slicewise.placement.defrag.moves import (
    DefragPlan,
    MovablePod,
    MoveSimulator,
    PodMove,
    Room,
)

__all__ = [
    "DefragOutcome",
    "DefragPlan",
    "MovablePod",
    "MoveSimulator",
    "PodMove",
    "Room",
    "SearchLimits",
    "plan_moves",
]  # fmt: skip
