"""GPUs by number: some systems write a GPU's index, others its device minor number.

A driver may number `/dev/nvidia<minor>` otherwise than it enumerates GPUs, so every number is
looked up on its node and becomes a GPU before anything is counted.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from slicewise.dialects.shared.texts import refuse
from slicewise.model import (
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    Gpu,
    Node,
    Slice,
    count,
    cut,
)

_INDEXES: Final = re.compile(r"[0-9]{1,6}(,[0-9]{1,6}){0,63}")

GpuFinder = Callable[[Node, int], Gpu | None]


def gpu_at(node: Node, index: int) -> Gpu | None:
    at = node.position(index)
    return None if at is None else node.gpus[at]


def gpu_with_minor(node: Node, minor: int) -> Gpu | None:
    """The GPU behind `/dev/nvidia<minor>`."""
    return next((gpu for gpu in node.gpus if gpu.minor == minor), None)


def read_numbered_gpus(field: str, text: str, node: Node, find: GpuFinder) -> tuple[Gpu, ...]:
    """The GPUs a value like '0,1' names, in its order and each once."""
    if _INDEXES.fullmatch(text) is None:
        raise refuse(field, text, "GPU indexes like '0,1'")
    gpus = []
    for number in map(int, text.split(",")):
        gpu = find(node, number)
        if gpu is None:
            raise refuse(field, text, f"GPUs of node {node.name}, which has no {number}")
        if gpu in gpus:
            raise refuse(field, text, "each GPU once")
        gpus.append(gpu)
    return tuple(gpus)


def read_container(
    field: str, text: str, container: ContainerRequest, node: Node, find: GpuFinder
) -> ContainerAllocation:
    """The container's slices of the GPUs a value like '0,1' names, as many as its shares."""
    gpus, wanted = read_numbered_gpus(field, text, node, find), len(container.shares)
    if len(gpus) != wanted:
        raise refuse(field, text, count(wanted, "GPU index", "GPU indexes"))
    return cut_container(container, gpus)


def cut_container(container: ContainerRequest, gpus: Sequence[Gpu]) -> ContainerAllocation:
    """Each share of the container on one of these GPUs."""
    slices = tuple(cut(share, gpu) for share, gpu in zip(container.shares, gpus, strict=True))
    return ContainerAllocation(container.name, slices)


def used_gpu(node: Node, piece: Slice) -> Gpu:
    """The GPU a slice was cut from."""
    gpu = gpu_at(node, piece.gpu)
    if gpu is None:
        raise DialectError(f"allocation of gpu {piece.gpu}: node {node.name} has no such gpu")
    return gpu


def write_numbers(numbers: Iterable[int]) -> str:
    """GPU numbers joined by commas, without spaces."""
    return ",".join(map(str, numbers))
