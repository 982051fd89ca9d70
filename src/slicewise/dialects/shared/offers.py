"""What each system's agent offers to the kubelet: resources, their units and their sockets.

A container may ask for several resources of one system, and the kubelet calls for each of them
in no order. The first resource that the container asks for, in the order of its edition, is the
one that carries what the container receives.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from slicewise.dialects.shared.injection import NOTHING
from slicewise.dialects.shared.limits import CARRIER, read_amount
from slicewise.model import FULL, Container, Gpu

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

PerGpu = Callable[[Gpu], int]


@dataclass(frozen=True, slots=True)
class OfferedResource:
    """One resource: how many units a GPU makes, and whether it brings the GPU along."""

    name: str
    socket: str
    per_gpu: PerGpu
    carries: bool = True
    """Whether a container may receive its GPUs through this resource."""
    prefix: str = ""
    """What the ids of its units begin with."""
    by_gpu: bool = False
    """Whether ids read as GPU and number, as elastic-gpu's do."""
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """What every container receives that asks for the resource, whatever its GPUs."""
    annotation_unit: int | None = None
    """How much one unit adds to the container's annotation of the resource's name, if any."""


@dataclass(frozen=True, slots=True)
class OfferedEdition:
    """The resources of one system under one set of names, the carrying ones first."""

    name: str
    resources: tuple[OfferedResource, ...]
    counts: tuple[tuple[str, PerGpu], ...] = ()
    """Amounts that stand on the node alone and are never handed out."""
    by_default: bool = True
    """Whether an agent that is told nothing offers it."""

    def carrier(self, container: Container) -> str | None:
        """The resource through which the container receives its GPUs; None when it asks none."""
        carrying = (each.name for each in self.resources if each.carries)
        return next((name for name in carrying if read_amount(container, name)), None)

    def has_other_carrier(self, resource: str) -> bool:
        """Whether a container may receive its GPUs through another resource than this."""
        return any(each.carries and each.name != resource for each in self.resources)


# More containers than a kubelet takes, of one GPU.
_CARRIED: Final = 256


def carry(devices: Iterable[OfferedResource]) -> OfferedEdition:
    """The carrier, for containers that ask for none of these resources."""
    own = OfferedResource(CARRIER, "slicewise-carrier.sock", lambda _: _CARRIED, prefix="c-")
    return OfferedEdition("carrier", (*(each for each in devices if each.carries), own))


def name_units(resource: OfferedResource, gpus: Sequence[Gpu]) -> Iterator[tuple[str, Gpu]]:
    """The id of every unit with the GPU that makes it; the kubelet may hand out any of them."""
    running = 0
    for position, gpu in enumerate(gpus):
        for at in range(resource.per_gpu(gpu)):
            text = f"{position}-{at:02}" if resource.by_gpu else write_short(running)
            yield resource.prefix + text, gpu
            running += 1


def count_lengths(resource: OfferedResource, gpus: Sequence[Gpu]) -> dict[int, int]:
    """How many ids of each length there are, without making them all."""
    if resource.by_gpu:
        return dict(Counter(len(name) for name, _ in name_units(resource, gpus)))
    left = sum(map(resource.per_gpu, gpus))
    lengths, length, numbers = {}, 1, 36
    while left:
        # Numbers of one more digit are those that fewer digits cannot write.
        lengths[len(resource.prefix) + length] = count = min(left, numbers)
        left -= count
        length, numbers = length + 1, 35 * 36**length
    return lengths


def write_short(value: int) -> str:
    """A number in as few letters and digits as there are."""
    text = _DIGITS[value % 36]
    while value := value // 36:
        text = _DIGITS[value % 36] + text
    return text


def one(_: Gpu) -> int:
    """A unit per GPU."""
    return 1


def percents(_: Gpu) -> int:
    """A unit per percent of each GPU."""
    return FULL


def units(unit: int) -> PerGpu:
    """A unit per so many MiB of each GPU."""
    return lambda gpu: gpu.memory // unit
