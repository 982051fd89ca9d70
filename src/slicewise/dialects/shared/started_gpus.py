"""Which GPUs running containers were really given, as a node's agent publishes on its Node.

A take-over compares it with the marks on pods before they are signed. The agent writes it from
what the runtime says, so that a tenant who edits a pod changes nothing of it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from slicewise.dialects.shared.texts import annotation, read_json, refuse, write_json
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    MiB,
    Node,
    Percent,
    Request,
    Slice,
    count,
    cut,
)

STARTED_GPUS: Final = "slicewise.io/started-gpus"
StartedGpus = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By pod UID and container name, the UUIDs of GPUs, in the order in which they were given."""
_FIELD: Final = annotation(STARTED_GPUS)
_FORM: Final = """like '{"<pod uid>":{"c0":["GPU-..."]}}'"""


def write_started_gpus(started: StartedGpus) -> str:
    """The annotation's value."""
    return write_json(
        {uid: {name: list(gpus) for name, gpus in given.items()} for uid, given in started.items()}
    )


def read_started_gpus(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """What the annotation's value says."""
    document = read_json(_FIELD, text, _FORM)
    if not isinstance(document, dict):
        raise refuse(_FIELD, text, _FORM)
    return {uid: _read_pod(text, given) for uid, given in document.items()}


def confirm_allocation(
    request: Request,
    marked: Allocation | None,
    given: Mapping[str, tuple[str, ...]],
    node: Node,
) -> Allocation:
    """What to sign for a running pod: its marks, where they agree with what it was given.

    A pod whose marks name no GPUs has those it was given. Init containers that have ended must
    have been on GPUs of the pod. Raises where marks and node disagree.
    """
    uuids = {gpu.index: gpu.uuid for gpu in node.gpus}
    everywhere = {uuid for gpus in given.values() for uuid in gpus}
    parts = []
    for container in request.containers:
        has = given.get(container.name)
        if marked is not None:
            pieces = marked.slices_of(container.name)
            named = {uuids.get(piece.gpu, "") for piece in pieces}
            agrees = named == set(has) if has is not None else named <= everywhere
            if not agrees or len(pieces) != len(container.shares):
                raise _disagree(container.name, sorted(named), sorted(has or everywhere))
            indexes = [piece.gpu for piece in pieces]
        else:
            by_uuid = {uuid: index for index, uuid in uuids.items()}
            indexes = [by_uuid[uuid] for uuid in has or () if uuid in by_uuid]
            if len(set(indexes)) != len(container.shares):
                raise _disagree(container.name, [count(len(container.shares), "GPU")], has or ())
            pieces = ()
        parts.append(_grant(container, indexes, pieces, node))
    return Allocation(node.name, tuple(parts))


def _grant(
    container: ContainerRequest, indexes: list[int], marked: tuple[Slice, ...], node: Node
) -> ContainerAllocation:
    """The container's shares on these GPUs; marks never make them smaller than its limits."""
    slices = []
    for at, (share, index) in enumerate(zip(container.shares, indexes, strict=True)):
        gpu = next(each for each in node.gpus if each.index == index)
        piece = cut(share, gpu)
        if marked:
            cores = Percent(max(piece.cores, marked[at].cores))
            memory = MiB(max(piece.memory, marked[at].memory))
            piece = Slice(index, cores, memory)
        slices.append(piece)
    return ContainerAllocation(container.name, tuple(slices))


def _disagree(container: str, marked: Iterable[str], given: Iterable[str]) -> DialectError:
    return DialectError(
        f"container {container} is marked for {', '.join(marked) or 'no GPU'}, "
        f"and was given {', '.join(given) or 'no GPU'}"
    )


def _read_pod(text: str, given: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, dict):
        raise refuse(_FIELD, text, _FORM)
    for gpus in given.values():
        if not isinstance(gpus, list) or not all(isinstance(each, str) for each in gpus):
            raise refuse(_FIELD, text, _FORM)
    return {name: tuple(gpus) for name, gpus in given.items()}
