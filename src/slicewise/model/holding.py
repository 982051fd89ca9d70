"""What pods hold: of their nodes, and by namespace and model of the whole cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slicewise.model.allocation import Slice
from slicewise.model.gpu import Gpu, Host, Node


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds of its node: charges per GPU, and CPU and main memory.

    `certain` is false when the pod's allocation could not be read: then every GPU is charged.
    `tentative` says that the pod may yet come to another node, where as much is held for it.
    """

    uid: str
    namespace: str
    name: str
    charges: tuple[Slice, ...] = ()
    host: Host = Host()
    priority: int = 0
    certain: bool = True
    tentative: bool = False

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Percent of GPUs that each namespace holds of each model; tentative holdings do not count.

    A change makes a new value, which shares the totals of all other namespaces.
    """

    totals: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))

    def add(self, node: Node, holding: Holding) -> "UsageTotals":
        return self._count(node, holding, 1)

    def remove(self, node: Node, holding: Holding) -> "UsageTotals":
        return self._count(node, holding, -1)

    def held(self, namespace: str, model: str) -> int:
        """Percent of GPUs of exactly this model that the namespace's pods hold."""
        models = self.totals.get(namespace)
        return 0 if models is None else models.get(model, 0)

    def listed(self) -> tuple[tuple[str, str, int], ...]:
        """Namespace, model and percent of everything that is held, in a stable order."""
        return tuple(
            (namespace, model, self.totals[namespace][model])
            for namespace in sorted(self.totals)
            for model in sorted(self.totals[namespace])
        )

    def models(self, namespace: str) -> frozenset[str]:
        """The models of which the namespace holds anything."""
        return frozenset(self.totals.get(namespace, ()))

    def _count(self, node: Node, holding: Holding, sign: int) -> "UsageTotals":
        if not holding.charges or not holding.certain or holding.tentative:
            return self
        models = dict(self.totals.get(holding.namespace, ()))
        for piece in holding.charges:
            at = node.position(piece.gpu)
            if at is not None:
                gpu = node.gpus[at]
                models[gpu.model] = models.get(gpu.model, 0) + sign * percent_of(piece, gpu)
                if not models[gpu.model]:
                    del models[gpu.model]
        totals = dict(self.totals)
        totals[holding.namespace] = models
        if not models:
            del totals[holding.namespace]
        return UsageTotals(totals)


def percent_of(piece: Slice, gpu: Gpu) -> int:
    """What a slice counts for: its compute, or its part of the memory if it names no compute."""
    if piece.cores:
        return int(piece.cores)
    return -(-100 * piece.memory // gpu.memory)
