"""What a pod is charged on the GPUs of its node, with or without a known allocation."""

from slicewise.model import (
    FULL,
    MiB,
    Node,
    NodeState,
    Percent,
    Request,
    Share,
    Slice,
    phases,
)


def can_hold(state: NodeState, charges: tuple[Slice, ...]) -> bool:
    return all(state.node.is_usable(piece.gpu) and state.has_room(piece) for piece in charges)


def charge_everywhere(request: Request, node: Node) -> tuple[Slice, ...]:
    """The most that the pod could hold of any GPU, charged to every GPU."""
    return tuple(Slice(gpu.index, *_most(request, int(gpu.memory))) for gpu in node.gpus)


def charge_fully(node: Node) -> tuple[Slice, ...]:
    """Everything the node has: for a pod whose request cannot be read."""
    return tuple(Slice(gpu.index, FULL, gpu.memory) for gpu in node.gpus)


def _most(request: Request, memory: int) -> tuple[Percent, MiB]:
    """Each container could have its largest share on this very GPU, all at the same time."""
    most_cores = most_memory = 0
    for phase in phases(request.containers):
        cores = held = 0
        for at in phase:
            shares = request.containers[at].shares
            cores += max(share.cores for share in shares)
            held += max(_memory(share, memory) for share in shares)
        most_cores, most_memory = max(most_cores, cores), max(most_memory, held)
    return Percent(min(most_cores, FULL)), MiB(min(most_memory, memory))


def _memory(share: Share, memory: int) -> int:
    return memory if share.whole else int(share.memory)
