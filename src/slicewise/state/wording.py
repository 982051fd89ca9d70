"""Requests and cards in the words that people read in events and explanations."""

from collections import Counter

from slicewise.model import ContainerAllocation, Node, Request, Share, Slice


def describe_request(request: Request) -> str:
    """The request, for people."""
    return "; ".join(
        f"{each.name}: "
        + " + ".join(_describe_shares(*pair) for pair in Counter(each.shares).items())
        for each in request.containers
    )


def describe_container(given: ContainerAllocation, node: Node) -> str:
    """The cards of one container, for people."""
    return f"{given.name}: " + ", ".join(describe_slice(piece, node) for piece in given.slices)


def describe_slice(piece: Slice, node: Node) -> str:
    """A part of a card, for people."""
    at = node.position(piece.gpu)
    model = "" if at is None else f" ({node.gpus[at].model})"
    if piece.cores == 100:
        return f"all of gpu {piece.gpu}{model}"
    parts = [f"{piece.cores} percent"] if piece.cores else []
    if piece.memory:
        parts.append(f"{piece.memory} MiB")
    return f"{' and '.join(parts)} of gpu {piece.gpu}{model}"


def _describe_shares(share: Share, count: int) -> str:
    if share.whole:
        return "a whole GPU" if count == 1 else f"{count} whole GPUs"
    parts = [f"{share.cores} percent"] if share.cores else []
    parts += [f"{share.memory} MiB"] if share.memory else []
    return " and ".join(parts) + (f" on each of {count} GPUs" if count > 1 else " of one GPU")
