"""How a gpushare pod's memory is divided over its containers and GPUs.

The annotations of a running pod are what the original counted, so what they say is charged to
the unit, even where the pod's limits say otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.dialects.shared.indexes import cut_container, gpu_with_minor, used_gpu
from slicewise.dialects.shared.texts import annotation, is_count, read_json, read_number, refuse
from slicewise.model import (
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
    Request,
    Role,
    Slice,
    count,
    phases,
)

_FORM: Final = """like '{"0":{"0":3,"1":3}}'"""


def measure_peak(request: Request, allocation: Allocation) -> int:
    """MiB the pod holds on all its GPUs together, in the phase that peaks."""
    held = [
        sum(piece.memory for piece in allocation.slices_of(each.name))
        for each in request.containers
    ]
    return max(sum(held[at] for at in phase) for phase in phases(request.containers))


def divide_units(request: Request, gpus: Sequence[Gpu], node: Node) -> Allocation:
    """Every container's own shares on these GPUs."""
    return Allocation(node.name, tuple(cut_container(each, gpus) for each in request.containers))


def divide_exactly(request: Request, gpus: Sequence[Gpu], node: Node, memory: MiB) -> Allocation:
    """Slices of these GPUs that cost exactly so much memory, by the limits where they agree."""
    by_limits = divide_units(request, gpus, node)
    # The original left init containers out of the sum; we write the phase that peaks.
    together = [each for each in request.containers if each.role is not Role.INIT]
    steady = sum(share.memory for each in together for share in each.shares)
    if memory in (steady, measure_peak(request, by_limits)):
        return by_limits
    # Containers that run together take what they ask for while it lasts, the last takes the
    # rest, and init containers live within it.
    together = together or [request.containers[-1]]
    slices: dict[str, list[Slice]] = {each.name: [] for each in request.containers}
    for at, gpu in enumerate(gpus):
        left = memory // len(gpus) + (at < memory % len(gpus))
        for each in request.containers:
            part = min(left, each.shares[at].memory) if each in together else 0
            part = left if each is together[-1] else part
            left -= part
            slices[each.name].append(Slice(gpu.index, Percent(0), MiB(part)))
    return Allocation(
        node.name, tuple(ContainerAllocation(name, tuple(given)) for name, given in slices.items())
    )


def write_division(pod: Pod, allocation: Allocation, node: Node, unit: MiB) -> str:
    """The allocation annotation: container position to GPU number to units, as JSON."""
    parts = []
    for at, container in enumerate(pod.main_containers):
        slices = allocation.slices_of(container.name)
        if slices:
            gpus = ",".join(
                f'"{used_gpu(node, piece).minor}":{-(-piece.memory // unit)}' for piece in slices
            )
            parts.append(f'"{at}":{{{gpus}}}')
    return f"{{{','.join(parts)}}}"


def read_division(key: str, pod: Pod, request: Request, node: Node, *, unit: MiB) -> Allocation:
    """The allocation that such an annotation divides, which must name every GPU container."""
    division = _Division(annotation(key), pod.annotations[key], node, unit)
    document = read_json(division.field, division.text, _FORM)
    positions = {each.name: str(at) for at, each in enumerate(pod.main_containers)}
    wanting = {positions.get(each.name) for each in request.containers}
    if not isinstance(document, dict) or set(document) != wanting:
        raise division.refuse(f"{_FORM} with the containers that ask for GPUs, and no others")
    given = [document[positions[each.name]] for each in request.containers]
    return Allocation(node.name, tuple(map(division.read_part, request.containers, given)))


@dataclass(frozen=True, slots=True)
class _Division:
    field: str
    text: str
    node: Node
    unit: MiB

    def refuse(self, expected: str) -> DialectError:
        return refuse(self.field, self.text, expected)

    def read_part(self, container: ContainerRequest, given: object) -> ContainerAllocation:
        if not isinstance(given, dict) or len(given) != len(container.shares):
            wanted = count(len(container.shares), "GPU")
            raise self.refuse(f"{wanted} for {container.name}")
        gpus = [self.find(number) for number in given]
        if len({gpu.index for gpu in gpus}) != len(gpus):
            raise self.refuse("each GPU once")
        slices = []
        for gpu, units in zip(gpus, given.values(), strict=True):
            if not is_count(units) or not 0 < units * self.unit <= MAX_MEMORY:
                raise self.refuse(_FORM)
            slices.append(Slice(gpu.index, Percent(0), MiB(units * self.unit)))
        return ContainerAllocation(container.name, tuple(slices))

    def find(self, number: str) -> Gpu:
        minor = read_number(self.field, number, "GPU indexes as keys")
        gpu = gpu_with_minor(self.node, minor)
        if gpu is None:
            raise self.refuse(f"GPUs of node {self.node.name}, which has no {number}")
        return gpu
