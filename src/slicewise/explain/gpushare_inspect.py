"""What `kubectl inspect gpushare` knows: nodes, their GPUs and who holds how many units.

Pods of gpushare are read by the rules of its own tool, whoever placed them. Pods of other systems
on the same GPUs are counted by their allocation, rounded up to gpushare's unit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.dialects import DEFAULT, GPUSHARE, Dialects, apply_record
from slicewise.dialects.gpushare.inspect_tool import measure_pod, read_quantity, read_units
from slicewise.dialects.gpushare.pods import GIB, MIB, detect_unit
from slicewise.dialects.shared.inventory import is_invented
from slicewise.dialects.shared.signed_record import judge
from slicewise.model import (
    MiB,
    Node,
    NodeDetails,
    NodeNotice,
    Pod,
    RecordTrust,
    Request,
    SlicewiseError,
    charge,
)

_UNITS: Final = {GIB.memory_unit: "GiB", MIB.memory_unit: "MiB"}


@dataclass(frozen=True, slots=True)
class InspectedGpu:
    """One GPU by the number gpushare knows it by, and its size in units."""

    number: int
    total: int
    model: str = ""
    usable: bool = True
    isolation: str = ""
    """The best tiers that it offers; empty where it offers none."""


@dataclass(frozen=True, slots=True)
class InspectedPod:
    """What one pod holds of each GPU, and what it holds of no known GPU."""

    namespace: str
    name: str
    amounts: Mapping[int, int]
    pending: int
    system: str
    phase: str

    @property
    def used(self) -> int:
        return sum(self.amounts.values()) + self.pending


@dataclass(frozen=True, slots=True)
class InspectedNode:
    """One node with its GPUs and pods; `unit` is empty while it is unknown."""

    name: str
    address: str
    total: int
    unit: str
    gpus: tuple[InspectedGpu, ...]
    pods: tuple[InspectedPod, ...]

    @property
    def used(self) -> int:
        """Units held on its GPUs, and pending."""
        return sum(pod.used for pod in self.pods)

    @property
    def pending(self) -> int:
        """Units of pods that are on no known GPU."""
        return sum(pod.pending for pod in self.pods)

    def used_of(self, number: int) -> int:
        return sum(pod.amounts.get(number, 0) for pod in self.pods)


def read_nodes(
    nodes: Iterable[NodeDetails],
    pods: Iterable[Pod],
    dialects: Dialects = DEFAULT,
    *,
    trust: RecordTrust | None = None,
) -> list[InspectedNode]:
    """Every node that has gpushare's memory, by name, all of them in one unit.

    With `trust`, signed records count in place of marks, and marks that nobody believes do not.
    """
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node is not None and not pod.phase.terminal:
            by_node.setdefault(pod.node, []).append(pod)
    read = [_read_node(each, by_node.get(each.name, ()), dialects, trust) for each in nodes]
    found = sorted((each for each in read if each.total > 0), key=lambda each: each.name)
    # One heading serves all nodes; only the smaller unit can say the others' amounts exactly.
    if len({each.unit for each in found} - {""}) > 1:
        return [_in_mib(each) for each in found]
    return found


def _read_node(
    details: NodeDetails, pods: Sequence[Pod], dialects: Dialects, trust: RecordTrust | None
) -> InspectedNode:
    notice = details.notice
    total = read_quantity(notice.allocatable, GIB.memory)
    count = read_quantity(notice.allocatable, GIB.count)
    node = _read_inventory(notice, dialects)
    if trust is not None and node is not None:
        pods = [_believe(pod, node, trust, dialects) for pod in pods]
    gpus = () if node is None else node.gpus
    unit = _find_unit(node, total // (count or len(gpus) or 1)) if count or gpus else None
    if node is not None and unit is not None and not is_invented(node.gpus[0].uuid):
        known = tuple(
            InspectedGpu(
                gpu.minor,
                gpu.memory // unit,
                gpu.model,
                gpu.usable,
                str(best) if (best := gpu.isolation.best) else "",
            )
            for gpu in sorted(gpus, key=lambda gpu: gpu.minor)
        )
    else:
        # Allocatable falls when a GPU fails, and would make every GPU look smaller.
        units = read_quantity(notice.capacity, GIB.memory) or total
        models = [gpu.model for gpu in gpus] + [""] * count
        known = tuple(InspectedGpu(at, units // count, models[at]) for at in range(count))
    uses = [_read_pod(pod, node, known, unit or GIB.memory_unit, dialects=dialects) for pod in pods]
    used = sorted(filter(None, uses), key=lambda use: (use.namespace, use.name))
    return InspectedNode(
        name=details.name,
        address=details.address or "unknown",
        total=total,
        unit="" if unit is None else _UNITS[unit],
        gpus=known,
        pods=tuple(used),
    )


def _find_unit(node: Node | None, per_gpu: int) -> MiB:
    """What the node's Dialects read, or what the number itself tells where they read nothing."""
    known = None if node is None else node.memory_unit
    return detect_unit(per_gpu) if known is None else known


def _read_inventory(notice: NodeNotice, dialects: Dialects) -> Node | None:
    """The node's GPUs as the most exact agent published them; None when none did."""
    try:
        node = dialects.read_node(notice)
    except SlicewiseError:
        return None
    return node if node.gpus else None


def _believe(pod: Pod, node: Node, trust: RecordTrust, dialects: Dialects) -> Pod:
    """The pod with marks as its signed record says, or without those that are not believed."""
    verdict = judge(pod, node, trust)
    if verdict.signed is None:
        return pod if verdict.believed or not node.agent else replace(pod, annotations={})
    try:
        request = dialects.read_request(pod)
        record = dialects.record_allocation(
            pod, request, verdict.signed.allocation, node, now_ns=verdict.signed.decided_ns
        )
    except SlicewiseError:
        return pod
    return apply_record(pod, record)


def _read_pod(
    pod: Pod, node: Node | None, gpus: Sequence[InspectedGpu], unit: int, *, dialects: Dialects
) -> InspectedPod | None:
    size = measure_pod(pod)
    if size:
        return _make(pod, read_units(pod, size), gpus, GPUSHARE.name)
    try:
        dialect = dialects.claim(pod)
        if dialect is None or node is None or dialect.name == GPUSHARE.name:
            return None
        request = dialect.pods.read_request(pod)
    except SlicewiseError:
        return None
    try:
        allocation = dialect.pods.read_allocation(pod, request, node)
    except SlicewiseError:
        allocation = None
    if allocation is None:
        return _make(pod, {-1: _most(request, node) // unit}, gpus, dialect.name)
    minors = {gpu.index: gpu.minor for gpu in node.gpus}
    amounts = {minors[piece.gpu]: -(-piece.memory // unit) for piece in charge(request, allocation)}
    return _make(pod, amounts, gpus, dialect.name)


def _make(
    pod: Pod, amounts: Mapping[int, int], gpus: Sequence[InspectedGpu], system: str
) -> InspectedPod:
    """The pod's use; whatever is on a GPU that the node does not have is pending."""
    known = {gpu.number for gpu in gpus}
    return InspectedPod(
        namespace=pod.namespace,
        name=pod.name,
        amounts={number: units for number, units in amounts.items() if number in known},
        pending=sum(units for number, units in amounts.items() if number not in known),
        system=system,
        phase=pod.phase.value,
    )


def _most(request: Request, node: Node) -> int:
    """MiB that the request amounts to; a whole GPU counts as the node's largest."""
    largest = max(gpu.memory for gpu in node.gpus)
    return sum(
        largest if share.whole else share.memory
        for each in request.containers
        for share in each.shares
    )


def _in_mib(node: InspectedNode) -> InspectedNode:
    """The node's amounts in MiB, whatever it counts in."""
    if node.unit != _UNITS[GIB.memory_unit]:
        return node
    each, unit = int(GIB.memory_unit), _UNITS[MIB.memory_unit]
    gpus = tuple(replace(gpu, total=gpu.total * each) for gpu in node.gpus)
    pods = []
    for pod in node.pods:
        amounts = {number: units * each for number, units in pod.amounts.items()}
        pods.append(replace(pod, amounts=amounts, pending=pod.pending * each))
    return replace(node, total=node.total * each, unit=unit, gpus=gpus, pods=tuple(pods))
