"""Requests and GPUs in the words that people read in events and explanations."""

from collections import Counter
from collections.abc import Iterable

from slicewise.model import FULL, ContainerAllocation, Node, Request, Share, Slice


def describe_request(request: Request) -> str:
    return "; ".join(
        f"{each.name}: "
        + " + ".join(_describe_shares(*pair) for pair in Counter(each.shares).items())
        for each in request.containers
    )


def describe_container(given: ContainerAllocation, node: Node) -> str:
    """The GPUs of one container, for people; equal parts of equal GPUs are grouped."""
    alike: dict[tuple[int, int, str], list[int]] = {}
    for piece in given.slices:
        model = _model(piece, node)
        # All of two GPUs is all of each, whatever their sizes.
        key = (piece.cores, 0 if piece.cores == FULL else piece.memory, model)
        alike.setdefault(key, []).append(piece.gpu)
    parts = (_describe_part(*key, numbers) for key, numbers in alike.items())
    limited = f", isolation {given.isolation}" if given.isolation else ""
    return f"{given.name}: {', '.join(parts)}{limited}"


def describe_slice(piece: Slice, node: Node) -> str:
    return _describe_part(piece.cores, piece.memory, _model(piece, node), [piece.gpu])


def _describe_part(cores: int, memory: int, model: str, numbers: list[int]) -> str:
    gpus = f"gpu {join_numbers(numbers)}{f' ({model})' if model else ''}"
    if cores == FULL:
        return f"all of {gpus}"
    amounts = [f"{cores} percent"] if cores else []
    amounts += [f"{memory} MiB"] if memory else []
    return f"{' and '.join(amounts)} of {'' if len(numbers) == 1 else 'each of '}{gpus}"


def _model(piece: Slice, node: Node) -> str:
    at = node.position(piece.gpu)
    return "" if at is None else node.gpus[at].model


def join_numbers(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 0-3, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def _describe_shares(share: Share, count: int) -> str:
    if share.whole:
        return "a whole GPU" if count == 1 else f"{count} whole GPUs"
    parts = [f"{share.cores} percent"] if share.cores else []
    parts += [f"{share.memory} MiB"] if share.memory else []
    return " and ".join(parts) + (f" on each of {count} GPUs" if count > 1 else " of one GPU")
