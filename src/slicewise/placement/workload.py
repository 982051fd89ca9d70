"""What pods of this cluster tend to ask for: the statistics behind prices and fragmentation.

A shape is what one request comes to; a workload counts the pods of each shape seen so far.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

from slicewise.model import FULL, Request, phases

# Traces of real clusters have up to some three hundred.
MOST_SHAPES: Final = 512


@dataclass(frozen=True, slots=True, order=True)
class PodShape:
    """One shape of request: CPU, and `count` GPUs with so much of each."""

    cpu: int = 0
    cores: int = 0
    count: int = 0
    memory: int = 0
    models: tuple[str, ...] = ()
    models_refused: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        return self.cores * self.count

    @property
    def whole(self) -> bool:
        return self.cores == FULL


def shape_of(request: Request) -> PodShape:
    """The shape of a request: what its own containers ask for, or its init containers if none do.

    Several containers that ask for one share each count as one GPU while that can hold them;
    otherwise shares of unequal size count as the mean share on as many GPUs.
    """
    cpu, constraints = int(request.host.cpu), request.constraints
    if not request.containers:
        return PodShape(cpu)
    last = [request.containers[at] for at in tuple(phases(request.containers))[-1]]
    asking = last or list(request.containers)
    shares = [share for container in asking for share in container.shares]
    cores, memory = sum(int(s.cores) for s in shares), sum(int(s.memory) for s in shares)
    if constraints.together:
        count = len(asking[0].shares)
    elif cores <= FULL and all(len(container.shares) == 1 for container in asking):
        count = 1
    else:
        count = len(shares)
    cores, memory = min(FULL, -(-cores // count)), -(-memory // count)
    return PodShape(cpu, cores, count, memory, constraints.models, constraints.models_refused)


@dataclass(frozen=True)
class Workload:
    """How many pods of each shape there were."""

    counts: Mapping[PodShape, int] = field(default_factory=lambda: MappingProxyType({}))
    leftovers: dict[object, object] = field(default_factory=dict, compare=False, repr=False)
    """What leftovers are worth to these pods, worked out once by `price_tables`."""

    @classmethod
    def of(cls, shapes: Iterable[PodShape]) -> "Workload":
        return cls(MappingProxyType(dict(Counter(shapes))))

    @cached_property
    def wanted(self) -> tuple[tuple[PodShape, int], ...]:
        """The shapes with GPUs and how many pods have each; of very many, the most frequent."""
        with_gpus = [(shape, count) for shape, count in self.counts.items() if shape.count]
        if len(with_gpus) > MOST_SHAPES:
            with_gpus = sorted(with_gpus, key=lambda each: (-each[1], each[0]))[:MOST_SHAPES]
        return tuple(sorted(with_gpus))

    @cached_property
    def target(self) -> tuple[tuple[PodShape, float], ...]:
        """The most frequent shapes, up to 95 percent of all pods, with their probabilities."""
        ranked = sorted(
            self.counts.items(),
            key=lambda item: (
                item[1],
                item[0].cpu,
                item[0].cores,
                item[0].count,
                "|".join(item[0].models),
                item[0],
            ),
            reverse=True,
        )
        total, taken = sum(self.counts.values()), 0
        chosen: list[tuple[PodShape, int]] = []
        for shape, count in ranked:
            if taken * 100 >= total * 95:
                break
            chosen.append((shape, count))
            taken += count
        # Shares of all pods first, then of those taken: the published curves feel the last bit.
        return tuple((shape, (count / total) / (taken / total)) for shape, count in chosen)
