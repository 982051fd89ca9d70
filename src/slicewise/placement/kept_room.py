"""Room that is kept for one pod while others still hold part of it.

What is kept are the free parts of the GPUs that the pod would get without those it waits for, so
that what they leave adds up instead of being taken piece by piece.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slicewise.model import (
    FULL,
    Allocation,
    ContainerAllocation,
    ContainerRequest,
    MiB,
    NodeState,
    Percent,
    Request,
    Share,
    Slice,
    Snapshot,
    charge,
)
from slicewise.placement.budget import StepBudget
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.planner import Planner

_ROOM = "room"


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """Something that can be reserved: the pod's own allocation, or the parts that are free yet."""

    request: Request
    allocation: Allocation
    complete: bool


def keep_room(
    planner: Planner,
    snapshot: Snapshot,
    wanted: PlacementRequest,
    node: str,
    awaited: Iterable[str],
) -> KeptRoom | None:
    """What of this node can be kept for the pod now; None when it will not fit there either.

    The snapshot must be without what is kept for the pod already.
    """
    state = snapshot.get(node)
    if state is None:
        return None
    asked = wanted.on(state.node).request
    placement = planner.place_on(snapshot, wanted, node, StepBudget())
    if placement is not None:
        return KeptRoom(asked, placement.allocation, complete=True)
    cleared = snapshot
    for uid in awaited:
        cleared = cleared.release(node, uid)
    target = planner.place_on(cleared, wanted, node, StepBudget())
    if target is None:
        return None
    free = [_free_part(state, piece) for piece in charge(asked, target.allocation)]
    pieces = tuple(piece for piece in free if piece.cores or piece.memory)
    if not pieces:
        return KeptRoom(Request(), Allocation(node), complete=False)
    shares = tuple(Share(piece.cores, piece.memory) for piece in pieces)
    kept = Allocation(node, (ContainerAllocation(_ROOM, pieces),))
    return KeptRoom(Request((ContainerRequest(_ROOM, shares),)), kept, complete=False)


def _free_part(state: NodeState, piece: Slice) -> Slice:
    """As much of the piece as nobody holds."""
    at = state.node.position(piece.gpu)
    if at is None:
        return Slice(piece.gpu, Percent(0), MiB(0))
    cores = min(piece.cores, max(0, state.free_cores(at)))
    memory = min(piece.memory, max(0, state.free_memory(at)))
    # All of the compute without all of the memory is no whole GPU.
    whole = cores == FULL and memory < piece.memory
    return Slice(piece.gpu, Percent(cores - 1 if whole else cores), MiB(memory))
