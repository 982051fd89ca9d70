"""What pods hold: of their nodes, and by namespace and model of the whole cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from slicewise.model.allocation import Slice
from slicewise.model.amounts import FULL
from slicewise.model.gpu import Host, Node


class GpuPart(Protocol):
    """A part of one GPU: a share or a slice."""

    @property
    def cores(self) -> int:
        """Percent of compute."""

    @property
    def memory(self) -> int:
        """MiB of memory."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds of its node: charges per GPU, and CPU and main memory.

    `certain` is false when the pod's allocation could not be read: then every GPU is charged,
    though the pod has at most so many `gpus`.
    `tentative` says that the pod may yet come to another node, where as much is held for it.
    """

    uid: str
    namespace: str
    name: str
    charges: tuple[Slice, ...] = ()
    host: Host = Host()
    priority: int = 0
    certain: bool = True
    gpus: int = 0
    tentative: bool = False
    claim: str = ""
    """The ResourceClaim that holds it, for the pod of that name and perhaps others."""

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        """The name of the pod, and of the claim by which it holds."""
        return f"{self.name} (claim {self.claim})" if self.claim else self.name

    @property
    def holder(self) -> str:
        """The same with the namespace."""
        return f"{self.namespace}/{self.title}"


class QuotaCount(Enum):
    """By which of its amounts a share of a GPU counts in a quota."""

    LARGER = "larger"
    COMPUTE = "compute"
    MEMORY = "memory"


Usage = tuple[int, int, int]
"""Percent of GPUs by each way to count, in the order of `QuotaCount`."""
_AT: Final = {count: at for at, count in enumerate(QuotaCount)}
_NOTHING: Final[Usage] = (0, 0, 0)
_WHOLE: Final[Usage] = (100, 100, 100)


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Percent of GPUs that each namespace holds of each model, by every way to count.

    A pod that is charged on every GPU because nobody knows on which it is counts for as many as
    it can have. What is held on several nodes for one pod counts once, where it is reserved.
    A change makes a new value, which shares the totals of all other namespaces.
    """

    totals: Mapping[str, Mapping[str, Usage]] = field(default_factory=lambda: MappingProxyType({}))

    def add(self, node: Node, holding: Holding) -> "UsageTotals":
        return self._count(node, holding, 1)

    def remove(self, node: Node, holding: Holding) -> "UsageTotals":
        return self._count(node, holding, -1)

    def reserve(self, namespace: str, percents: Mapping[str, int], sign: int = 1) -> "UsageTotals":
        """Count a pod that may yet come to GPUs of any of these models; -1 takes it back."""
        if not percents:
            return self
        each = ((model, (percent, percent, percent)) for model, percent in percents.items())
        return self._change(namespace, each, sign)

    def held(self, namespace: str, model: str, count: QuotaCount = QuotaCount.LARGER) -> int:
        """Percent of GPUs of exactly this model that the namespace's pods hold."""
        models = self.totals.get(namespace)
        return 0 if models is None else models.get(model, _NOTHING)[_AT[count]]

    def listed(self) -> tuple[tuple[str, str, int], ...]:
        """Namespace, model and percent of everything that is held, in a stable order."""
        return tuple(
            (namespace, model, self.held(namespace, model))
            for namespace in sorted(self.totals)
            for model in sorted(self.totals[namespace])
        )

    def models(self, namespace: str) -> frozenset[str]:
        """The models of which the namespace holds anything."""
        return frozenset(self.totals.get(namespace, ()))

    def _count(self, node: Node, holding: Holding, sign: int) -> "UsageTotals":
        if not holding.charges or holding.tentative:
            return self
        found: list[tuple[str, Usage]] = []
        counted: dict[str, int] = {}
        for piece in holding.charges:
            at = node.position(piece.gpu)
            if at is None:
                continue
            gpu = node.gpus[at]
            if not holding.certain:
                # Such charges differ only by the size of GPUs, which are of one size in a model.
                counted[gpu.model] = counted.get(gpu.model, 0) + 1
                if counted[gpu.model] > holding.gpus:
                    continue
            found.append((gpu.model, usage_of(piece, gpu.memory)))
        return self._change(holding.namespace, found, sign)

    def _change(
        self, namespace: str, amounts: Iterable[tuple[str, Usage]], sign: int
    ) -> "UsageTotals":
        models = dict(self.totals.get(namespace, ()))
        for model, (larger, compute, memory) in amounts:
            held = models.get(model, _NOTHING)
            now = (held[0] + sign * larger, held[1] + sign * compute, held[2] + sign * memory)
            models[model] = now
            if now == _NOTHING:
                del models[model]
        totals = dict(self.totals)
        totals[namespace] = models
        if not models:
            del totals[namespace]
        return UsageTotals(totals)


def usage_of(part: GpuPart, gpu_memory: int) -> Usage:
    """What a share or slice counts for by each way to count; a whole GPU is 100 by all.

    By compute, one that names none counts for its part of the memory.
    """
    cores = part.cores
    if cores == FULL:
        return _WHOLE
    memory = -(-100 * part.memory // gpu_memory)
    return (cores if cores > memory else memory), cores or memory, memory


def percent_of(part: GpuPart, gpu_memory: int, count: QuotaCount) -> int:
    """What a share or slice counts for by this way to count."""
    return usage_of(part, gpu_memory)[_AT[count]]
