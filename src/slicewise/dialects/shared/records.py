"""The allocation spelled out in full, in Slicewise's own annotation.

It is the whole record for our own dialect and for systems that record nothing, and stands beside
the records of the others wherever those cannot say everything. Where it is valid, it is believed.
"""

from dataclasses import replace
from typing import Final

from slicewise.dialects.shared.indexes import gpu_at, used_gpu
from slicewise.dialects.shared.inventory import is_invented
from slicewise.dialects.shared.isolation import read_terms
from slicewise.dialects.shared.limits import AmountRule
from slicewise.dialects.shared.texts import annotation, is_count, read_json, refuse, write_json
from slicewise.model import (
    FULL,
    MAX_MEMORY,
    Allocation,
    ContainerAllocation,
    ContainerRequest,
    DialectError,
    Gpu,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Slice,
    count,
)

ALLOCATION: Final = "slicewise.io/allocation"

_FIELD: Final = annotation(ALLOCATION)
FORM: Final = """like '{"containers":{"c0":[[0,"GPU-...",30,4096]]},"node":"n0"}'"""


def write_full_record(allocation: Allocation, node: Node) -> str:
    """The annotation's value without a signature: the containers' slices and the node."""
    return write_json({"containers": write_containers(allocation, node), "node": allocation.node})


def write_containers(allocation: Allocation, node: Node) -> dict[str, list[list[object]]]:
    """Per container its slices as index, UUID, percent and MiB."""
    return {
        each.name: [
            [piece.gpu, used_gpu(node, piece).uuid, piece.cores, piece.memory]
            for piece in each.slices
        ]
        for each in allocation.containers
    }


def read_full_record(text: str, request: Request, node: Node) -> Allocation:
    """The allocation that the annotation's value spells out, on the GPUs the node has today."""
    document = read_json(_FIELD, text, FORM)
    if not isinstance(document, dict) or not isinstance(document.get("containers"), dict):
        raise refuse(_FIELD, text, FORM)
    if document.get("node") != node.name:
        raise refuse(_FIELD, text, f"an allocation on node {node.name}")
    given = document["containers"]
    if set(given) != {container.name for container in request.containers}:
        raise refuse(_FIELD, text, "the containers that ask for GPUs, and no others")
    parts = (_read_container(text, each, given[each.name], node) for each in request.containers)
    terms = (read_terms(_FIELD, document, each.name) for each in request.containers)
    return Allocation(
        node.name,
        tuple(
            replace(part, isolation=isolation, ceiling=ceiling)
            for part, (isolation, ceiling) in zip(parts, terms, strict=True)
        ),
    )


def apply_record(pod: Pod, record: PodRecord) -> Pod:
    """The pod as it will be listed once the record is on it."""
    return replace(
        pod,
        annotations={**pod.annotations, **record.annotations},
        labels={**pod.labels, **record.labels},
    )


def _read_container(
    text: str, container: ContainerRequest, given: object, node: Node
) -> ContainerAllocation:
    if not isinstance(given, list) or len(given) != len(container.shares):
        wanted = count(len(container.shares), "slice")
        raise refuse(_FIELD, text, f"{wanted} for {container.name}")
    slices = tuple(read_slice(text, entry, node) for entry in given)
    if len({piece.gpu for piece in slices}) != len(slices):
        raise refuse(_FIELD, text, f"each GPU once for {container.name}")
    # Users can annotate their own pods; a record must not make a pod cheaper than its limits.
    if any(
        piece.cores < share.cores or piece.memory < share.memory
        for share, piece in zip(container.shares, slices, strict=True)
    ):
        raise refuse(_FIELD, text, f"no less than {container.name} asks for")
    return ContainerAllocation(container.name, slices)


def read_slice(text: str, entry: object, node: Node) -> Slice:
    """One slice of a record, on the GPU that the node has today."""
    match entry:
        case [int(index), str(uuid), int(cores), int(memory)] if all(
            is_count(number) for number in (index, cores, memory)
        ):
            pass
        case _:
            raise refuse(_FIELD, text, FORM)
    if cores > FULL or memory > MAX_MEMORY:
        raise refuse(_FIELD, text, f"at most {FULL} percent and {MAX_MEMORY} MiB of a GPU")
    gpu = _find_gpu(node, index, uuid)
    if gpu is None:
        raise refuse(_FIELD, text, f"GPUs of node {node.name}, which has no {uuid}")
    return Slice(gpu.index, Percent(cores), gpu.memory if cores == FULL else MiB(memory))


def has_gpu(entry: object, node: Node) -> bool:
    """Whether the node still has the GPU of a record's slice; true of what is no slice at all."""
    match entry:
        case [int(index), str(uuid), _, _]:
            return _find_gpu(node, index, uuid) is not None
    return True


def _find_gpu(node: Node, index: int, uuid: str) -> Gpu | None:
    # A replaced or newly detected GPU shifts the indexes of the others; the UUID stays.
    found = next((gpu for gpu in node.gpus if gpu.uuid == uuid), None)
    return gpu_at(node, index) if found is None and is_invented(uuid) else found


class RecordedPods:
    """Keeps allocations in the system's own record, and ours beside it unless theirs says all.

    A system that records nothing leaves `read_own` and `write_own` as they are.
    """

    __slots__ = ()
    records_nothing: bool = False
    divisible: frozenset[str] = frozenset()
    target_keys: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key_prefixes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    amount_rules: tuple[AmountRule, ...] = ()

    def adopted_on(self, pod: Pod, node: Node) -> bool:
        """Whether the system itself leaves the choice to the node."""
        return self.records_nothing

    def read_own(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        """What the system's own record says; None when there is none."""
        return None

    def write_own(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, now_ns: int
    ) -> PodRecord:
        """The record as the system's own agents read it."""
        return PodRecord()

    def says_all(self, recorded: Pod, request: Request, allocation: Allocation, node: Node) -> bool:
        """Whether the system's own record, read back, is this allocation."""
        try:
            return self.read_own(recorded, request, node) == allocation
        except DialectError:
            return False

    def read_allocation(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        """Our record where it is valid, otherwise what the system's own says."""
        text = pod.annotations.get(ALLOCATION)
        if text is None:
            return self.read_own(pod, request, node)
        try:
            return read_full_record(text, request, node)
        except DialectError:
            own = self.read_own(pod, request, node)
            if own is None:
                raise
            return own

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """The system's own record, and ours beside it unless the system's says everything."""
        record = self.write_own(pod, request, allocation, node, now_ns)
        recorded = apply_record(pod, record)
        # A full record left by an earlier decision would be believed before this one.
        if ALLOCATION not in pod.annotations and self.says_all(recorded, request, allocation, node):
            return record
        full = write_full_record(allocation, node)
        return replace(record, annotations={**record.annotations, ALLOCATION: full})
