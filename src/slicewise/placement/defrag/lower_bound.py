"""How many pods must leave a node at least before a request can fit there, by counting alone."""

from slicewise.model import FULL, NodeState, Slice
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.groups import Group, split
from slicewise.placement.quota_limits import admitted_gpus


def count_least(state: NodeState, wanted: PlacementRequest, movable: frozenset[str]) -> int | None:
    """The least number of movable pods that must go, or None when all of them do not suffice.

    A pod on several GPUs can help each of them, so what the GPUs lack is divided by the most that
    one pod holds.
    """
    groups = split(wanted.request)
    held: dict[int, list[Slice]] = {}
    span = 1
    for each in state.holdings:
        if each.uid in movable:
            span = max(span, len(each.charges))
            for piece in each.charges:
                held.setdefault(piece.gpu, []).append(piece)
    least = 0
    gpus = admitted_gpus(state, wanted.request, wanted.limits)
    for group in groups:
        needs = sorted(
            number for at in gpus if (number := _count_on(state, at, group, held)) is not None
        )
        if len(needs) < group.count:
            return None
        least = max(least, -(-sum(needs[: group.count]) // span))
    return least


def _count_on(state: NodeState, at: int, group: Group, held: dict[int, list[Slice]]) -> int | None:
    """How many pods must leave one GPU for one share; None when that never fits."""
    gpu = state.node.gpus[at]
    if not gpu.usable:
        return None
    pieces = held.get(gpu.index, [])
    if group.whole:
        cores, memory = FULL - state.free_cores(at), gpu.memory - state.free_memory(at)
    else:
        cores = group.cores - state.free_cores(at)
        memory = group.memory - state.free_memory(at)
    by_cores = _count_for(cores, sorted((int(piece.cores) for piece in pieces), reverse=True))
    by_memory = _count_for(memory, sorted((int(piece.memory) for piece in pieces), reverse=True))
    if by_cores is None or by_memory is None or (group.whole and group.memory > gpu.memory):
        return None
    return max(by_cores, by_memory)


def _count_for(lacking: int, amounts: list[int]) -> int | None:
    """How many of these amounts, largest first, make up for what is lacking."""
    for number, amount in enumerate(amounts):
        if lacking <= 0:
            return number
        lacking -= amount
    return len(amounts) if lacking <= 0 else None
