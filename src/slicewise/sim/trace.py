"""What a replay is fed: nodes, the pods that may arrive, their order, and who wins ties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from slicewise.model import Node, Request
from slicewise.placement import Workload, shape_of


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod of a trace, by its name and what it asks for."""

    name: str
    request: Request
    namespace: str = "default"
    priority: int = 0

    @property
    def size(self) -> str:
        """The pod's kind as tables show it: `cpu`, `part`, or the number of whole GPUs."""
        kind = shape_of(self.request)
        if not kind.count:
            return "cpu"
        if kind.cores < 100:
            return "part" if kind.count == 1 else f"{kind.count} parts"
        return str(kind.count)


@dataclass(frozen=True)
class Trace:
    """A cluster and a list of pods, both sorted by name; `notes` say what reading changed."""

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[TracePod, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def workload(self) -> Workload:
        return Workload.of(shape_of(pod.request) for pod in self.pods)

    @cached_property
    def capacity(self) -> int:
        return sum(100 * len(node.gpus) for node in self.nodes)

    @cached_property
    def memory(self) -> int:
        return sum(gpu.memory for node in self.nodes for gpu in node.gpus)

    @cached_property
    def demands(self) -> tuple[int, ...]:
        """Percent of GPU each pod brings to the arrived load.

        That is compute; where no pod asks for compute, it is the part of an average GPU's memory.
        """
        kinds = [shape_of(pod.request) for pod in self.pods]
        if any(kind.demand for kind in kinds):
            return tuple(kind.demand for kind in kinds)
        gpus = self.capacity // 100
        per_gpu = self.memory // gpus if gpus else 1
        return tuple(min(100, -(-100 * kind.memory // per_gpu)) * kind.count for kind in kinds)


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """Who comes in which order, as positions in the trace's pods; ties go to the lowest rank."""

    order: Sequence[int]
    ranks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PodVisits:
    """Pods that come and go: when each arrives and how long it would stay, in mean stays."""

    order: Sequence[int]
    times: Sequence[float]
    stays: Sequence[float]
    ranks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
