"""Requests and cards in the words that people read in events and explanations."""

from slicewise.model import ContainerAllocation, Node, Request, Slice


def describe_request(request: Request) -> str:
    """The request, for people."""
    return "; ".join(
        f"{each.name}: "
        + " + ".join(
            "a whole GPU" if share.whole else f"{share.cores} percent and {share.memory} MiB"
            for share in each.shares
        )
        for each in request.containers
    )


def describe_container(given: ContainerAllocation, node: Node) -> str:
    """The cards of one container, for people."""
    return f"{given.name}: " + ", ".join(_describe(piece, node) for piece in given.slices)


def _describe(piece: Slice, node: Node) -> str:
    at = node.position(piece.gpu)
    model = "" if at is None else f" ({node.gpus[at].model})"
    if piece.cores == 100:
        return f"all of gpu {piece.gpu}{model}"
    parts = [f"{piece.cores} percent"] if piece.cores else []
    if piece.memory:
        parts.append(f"{piece.memory} MiB")
    return f"{' and '.join(parts)} of gpu {piece.gpu}{model}"
