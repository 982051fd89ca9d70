"""The gpushare dialect: memory of one GPU, or the same memory on each of several.

All containers of a pod are on the same GPUs. Compute is not counted: a share is memory alone.
"""

from dataclasses import dataclass
from typing import Final

from slicewise.dialects.gpushare import division
from slicewise.dialects.shared import indexes, limits
from slicewise.dialects.shared.dialect import Limits
from slicewise.dialects.shared.records import ALLOCATION, RecordedPods
from slicewise.dialects.shared.texts import annotation, label, read_number, refuse
from slicewise.model import (
    Allocation,
    Constraints,
    Container,
    DialectError,
    MiB,
    Node,
    Percent,
    Pod,
    PodRecord,
    Request,
    Role,
    Share,
    count,
)


@dataclass(frozen=True, slots=True)
class GpushareNames:
    """How gpushare spells its names, and how large a unit of its memory is."""

    memory_unit: MiB
    memory: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"
    index: str = "ALIYUN_COM_GPU_MEM_IDX"
    gpu_units: str = "ALIYUN_COM_GPU_MEM_DEV"
    pod_units: str = "ALIYUN_COM_GPU_MEM_POD"
    assigned: str = "ALIYUN_COM_GPU_MEM_ASSIGNED"
    assume_time: str = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
    division: str = "scheduler.framework.gpushare.allocation"

    @property
    def unit_word(self) -> str:
        """The unit as people write it."""
        return "GiB" if self.memory_unit == GIB.memory_unit else "MiB"


GIB: Final = GpushareNames(MiB(1024))
MIB: Final = GpushareNames(MiB(1))
UNITS: Final = {"gib": GIB.memory_unit, "mib": MIB.memory_unit}
"""The units by what people call them, in small letters."""


def detect_unit(units_per_gpu: int) -> MiB:
    """The unit in which a node counts, told by how many units one of its GPUs has."""
    # The original tool drew this line at 100 and took GPUs above 100 GiB for MiB.
    return MIB.memory_unit if units_per_gpu > 1024 else GIB.memory_unit


def read_span(pod: Pod, names: GpushareNames) -> int:
    """On how many GPUs each container is: by the label, else by the resource of that name."""
    text = pod.labels.get(names.count)
    if text is not None:
        span = read_number(label(names.count), text, "a number of GPUs from 1 up")
        if span == 0:
            raise refuse(label(names.count), text, "a number of GPUs from 1 up")
        return limits.check_count(f"{label(names.count)}={text!r}", span)
    asked = {limits.read_amount(each, names.count) for each in pod.containers} - {0}
    if len(asked) > 1:
        shown = " and ".join(map(str, sorted(asked)))
        raise DialectError(f"{names.count}={shown}: expected one number for the whole pod")
    span = asked.pop() if asked else 1
    return limits.check_count(f"{names.count}={span}", span)


@dataclass(frozen=True)
class GpusharePods(RecordedPods):
    """Reads and writes pods of gpushare, in the unit its cluster uses."""

    names: GpushareNames = GIB

    # Some users ask for a count beside the memory.
    resources = frozenset((GIB.memory, GIB.count))
    keys = (GIB.count, GIB.division)
    marks = ("ALIYUN_COM_GPU_MEM_*", GIB.division)
    key_prefixes = ("ALIYUN_COM_GPU_MEM_",)

    def claims(self, pod: Pod) -> str | None:
        return limits.first_asked(pod, (GIB.memory, GIB.count))

    def read_request(self, pod: Pod) -> Request:
        """The same share on each of the pod's GPUs, for every container that asks."""
        names, span = self.names, read_span(pod, self.names)

        def read(container: Container) -> tuple[Share, ...]:
            units = limits.read_amount(container, names.memory)
            if units == 0:
                return ()
            if units % span:
                field = label(names.count) if names.count in pod.labels else names.count
                raise refuse(field, str(span), f"a divisor of {names.memory}={units}")
            memory = limits.read_memory(names.memory, units, names.memory_unit)
            return (Share(Percent(0), MiB(memory // span)),) * span

        containers = limits.read_containers(pod, read)
        if not containers:
            raise DialectError(f"{names.count}={span}: expected {names.memory} beside it")
        return Request(containers, Constraints(together=True), memory_unit=names.memory_unit)

    def adopted_on(self, pod: Pod, node: Node) -> bool:
        """Whether no extender saw it and there is but one GPU, on which the original starts it."""
        shared = [gpu for gpu in node.gpus if not gpu.mig]
        marks = (ALLOCATION, self.names.index, self.names.division)
        seen = any(key in pod.annotations for key in marks)
        # What the original's own plugin starts is charged where it is, and needs no record.
        return node.agent and len(shared) == 1 and not seen

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        """All its memory on one GPU, for a label may say that it is on several."""
        units = limits.most_amount(container, self.names.memory)
        shares = limits.most_shares(0, units * self.names.memory_unit)
        return (shares,) if shares else ()

    def write_own(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, now_ns: int
    ) -> PodRecord:
        """The five annotations of the extender, and the division over several GPUs."""
        names, unit = self.names, self.names.memory_unit
        pieces = (piece for each in allocation.containers for piece in each.slices)
        # Minor numbers, for the original plugin knows its GPUs by these alone.
        gpus = list(dict.fromkeys(indexes.used_gpu(node, piece) for piece in pieces))
        if not gpus:
            raise DialectError(f"pod {pod.namespace}/{pod.name}: expected an allocation of a GPU")
        annotations = {
            names.index: indexes.write_numbers(gpu.minor for gpu in gpus),
            names.gpu_units: str(gpus[0].memory // unit),
            names.pod_units: str(-(-division.measure_peak(request, allocation) // unit)),
            names.assigned: "false",
            names.assume_time: str(now_ns),
        }
        if len(gpus) > 1 or names.division in pod.annotations:
            annotations[names.division] = division.write_division(pod, allocation, node, unit)
        return PodRecord(annotations)

    def says_all(self, recorded: Pod, request: Request, allocation: Allocation, node: Node) -> bool:
        """Never beside init containers and sidecars, which the annotations do not name."""
        if any(each.role is not Role.MAIN for each in request.containers):
            return False
        return super().says_all(recorded, request, allocation, node)

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """Memory in the cluster's unit, for all of the pod's GPUs together."""
        names, span = self.names, read_span(pod, self.names)
        if what == "memory":
            return {names.memory: amount // names.memory_unit * span}
        if what == "gpus":
            [container] = self.read_request(pod).containers
            each = container.shares[0].memory // names.memory_unit
            return {names.memory: each * amount, names.count: amount}
        return {}

    def read_own(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        key, unit = self.names.division, self.names.memory_unit
        index = pod.annotations.get(self.names.index)
        if key in pod.annotations:
            try:
                return division.read_division(key, pod, request, node, unit=unit)
            except DialectError:
                if index is None:
                    raise
        return None if index is None else self._read_index(index, pod, request, node)

    def _read_index(self, text: str, pod: Pod, request: Request, node: Node) -> Allocation:
        names, field = self.names, annotation(self.names.index)
        gpus = indexes.read_numbered_gpus(field, text, node, indexes.gpu_with_minor)
        wanted = len(request.containers[0].shares)
        if len(gpus) != wanted:
            raise refuse(field, text, count(wanted, "GPU index", "GPU indexes"))
        total = pod.annotations.get(names.pod_units)
        if total is None:
            return division.divide_units(request, gpus, node)
        expected = "the pod's units of GPU memory from 1 up"
        units = read_number(annotation(names.pod_units), total, expected)
        if units == 0:
            raise refuse(annotation(names.pod_units), total, expected)
        memory = limits.read_memory(annotation(names.pod_units), units, names.memory_unit)
        return division.divide_exactly(request, gpus, node, memory)
