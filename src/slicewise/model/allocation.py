"""Allocations: slices of GPUs per container, and what they charge each GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slicewise.model.amounts import FULL, MiB, Percent
from slicewise.model.gpu import Gpu
from slicewise.model.isolation import Isolation
from slicewise.model.request import Phased, Request, Share, phases


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """A part of one GPU, by the GPU's index on its node."""

    gpu: int
    cores: Percent
    memory: MiB


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """The slices of one container, in the order of its shares.

    `isolation` is what was promised of its limits, and `ceiling` the percent of compute that it
    may borrow; they are terms of the record, and two allocations of the same slices are equal.
    """

    name: str
    slices: tuple[Slice, ...]
    isolation: Isolation | None = field(default=None, compare=False)
    ceiling: Percent | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where a pod's containers are, in the order of its request."""

    node: str
    containers: tuple[ContainerAllocation, ...] = ()

    def slices_of(self, name: str) -> tuple[Slice, ...]:
        """The slices of the container with this name; empty when it has none."""
        return next((each.slices for each in self.containers if each.name == name), ())

    @property
    def by_container(self) -> dict[str, tuple[Slice, ...]]:
        return {each.name: each.slices for each in self.containers}

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(sorted({piece.gpu for each in self.containers for piece in each.slices}))


def cut(share: Share, gpu: Gpu) -> Slice:
    """The slice a share takes of this GPU; a whole share takes all its memory."""
    return Slice(gpu.index, share.cores, gpu.memory if share.whole else share.memory)


def charge(request: Request, allocation: Allocation) -> tuple[Slice, ...]:
    """What the pod is charged on each GPU, by the phase that peaks; ascending GPU index."""
    if len(allocation.containers) == 1:
        return tuple(sorted(allocation.containers[0].slices))
    return peak(request.containers, {each.name: each.slices for each in allocation.containers})


def peak(
    containers: Sequence[Phased], slices: Mapping[str, tuple[Slice, ...]]
) -> tuple[Slice, ...]:
    """The most that is held of each GPU at any time in the pod's life."""
    highest: dict[int, tuple[int, int]] = {}
    for phase in phases(containers):
        for gpu, (cores, memory) in _sum(
            piece for at in phase for piece in slices.get(containers[at].name, ())
        ).items():
            most_cores, most_memory = highest.get(gpu, (0, 0))
            highest[gpu] = (max(most_cores, cores), max(most_memory, memory))
    return tuple(
        Slice(gpu, Percent(cores), MiB(memory)) for gpu, (cores, memory) in sorted(highest.items())
    )


def _sum(pieces: Iterable[Slice]) -> dict[int, tuple[int, int]]:
    sums: dict[int, tuple[int, int]] = {}
    for piece in pieces:
        cores, memory = sums.get(piece.gpu, (0, 0))
        sums[piece.gpu] = (cores + piece.cores, memory + piece.memory)
    return sums


def whole_gpus(pieces: Iterable[Slice]) -> int:
    """How many of these charges take a GPU for themselves."""
    whole = 0
    # A generator would take twice as long, and whole clusters are counted by this.
    for piece in pieces:
        whole += piece.cores == FULL
    return whole
