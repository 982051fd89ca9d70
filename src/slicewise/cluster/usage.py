"""How much of each GPU model every namespace holds, in percent of a GPU."""

from collections import Counter

from slicewise.model import Gpu, Holding, Node, Slice


class UsageTotals:
    """Running sums by namespace and model, kept by the ledger."""

    def __init__(self) -> None:
        self._held: Counter[tuple[str, str]] = Counter()

    def count(self, node: Node, holding: Holding, sign: int) -> None:
        """Add a pod's holding, or take it away again."""
        if not holding.certain or holding.tentative:
            return
        for piece in holding.charges:
            at = node.position(piece.gpu)
            if at is not None:
                gpu = node.gpus[at]
                key = (holding.namespace, gpu.model)
                self._held[key] += sign * percent_of(piece, gpu)
                if not self._held[key]:
                    del self._held[key]

    def held(self, namespace: str, model: str) -> int:
        """Percent of GPUs of exactly this model that the namespace's pods hold."""
        return self._held[namespace, model]

    def listed(self) -> tuple[tuple[str, str, int], ...]:
        """Namespace, model and percent of everything that is held, in a stable order."""
        return tuple((*key, self._held[key]) for key in sorted(self._held))

    def models(self, namespace: str) -> frozenset[str]:
        """The models of which the namespace holds anything."""
        return frozenset(model for space, model in self._held if space == namespace)


def percent_of(piece: Slice, gpu: Gpu) -> int:
    """What a slice counts for: its compute, or its part of the memory if it names no compute."""
    if piece.cores:
        return int(piece.cores)
    return -(-100 * piece.memory // gpu.memory)
