"""What each system's agent offers to the kubelet: resources, their units and their sockets.

A container may ask for several resources of one system, and the kubelet calls for each of them
in no order. The first resource that the container asks for, in the order of its edition, is the
one that carries what the container receives.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from slicewise.dialects import elastic, gpuscheduler, gpushare, slicewise, tkestack
from slicewise.dialects.shared.injection import NOTHING
from slicewise.dialects.shared.limits import read_amount
from slicewise.model import FULL, Container, DialectError, Gpu, MiB

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

# The pod's own value wins over this one, which it would not if it came with the GPUs.
_LIBRARIES: Final = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}

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
    dialect: str
    resources: tuple[OfferedResource, ...]
    counts: tuple[tuple[str, PerGpu], ...] = ()
    """Amounts that stand on the node alone and are never handed out."""

    def carrier(self, container: Container) -> str | None:
        """The resource through which the container receives its GPUs; None when it asks none."""
        carrying = (each.name for each in self.resources if each.carries)
        return next((name for name in carrying if read_amount(container, name)), None)

    def has_other_carrier(self, resource: str) -> bool:
        """Whether a container may receive its GPUs through another resource than this."""
        return any(each.carries and each.name != resource for each in self.resources)


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


def hash_ids(ids: Iterable[str]) -> str:
    """elastic-gpu's name for a set of units: eight digits that its host links carry."""
    return hashlib.sha256(":".join(sorted(ids)).encode()).hexdigest()[:8]


def build_editions(
    wanted: Iterable[str], *, share_unit: MiB = gpushare.GIB.memory_unit
) -> tuple[OfferedEdition, ...]:
    """The editions of these names, with the unit of gpushare."""
    known = {
        "slicewise": _OWN,
        "tkestack": _tkestack("tkestack", tkestack.FORK, ""),
        "tkestack-upstream": _tkestack("tkestack-upstream", tkestack.UPSTREAM, "tencent-"),
        "gpushare": _gpushare(share_unit),
        "elastic": _elastic("elastic", elastic.CURRENT, "elastic-gpushare", ""),
        "elastic-com": _elastic("elastic-com", elastic.ALIAS, "elastic-com", "com-"),
        "elastic-percent": _elastic("elastic-percent", elastic.PERCENT, "elastic-gpu", "nano-"),
        "nano": _elastic("nano", elastic.NANO_OLD, "nano-gpu", "old-"),
        "nano-percent": _elastic("nano-percent", elastic.NANO, "nano-gpu-percent", "percent-"),
        "nvidia": _NVIDIA,
    }
    chosen = []
    for name in dict.fromkeys(wanted):
        if name not in known:
            raise DialectError(f"dialect {name!r}: expected {', '.join(known)}")
        chosen.append(known[name])
    return tuple(chosen)


def _one(_: Gpu) -> int:
    return 1


def _percents(_: Gpu) -> int:
    return FULL


def _units(unit: int) -> PerGpu:
    return lambda gpu: gpu.memory // unit


_OWN: Final = OfferedEdition(
    "slicewise",
    "slicewise",
    (
        OfferedResource(slicewise.GPU, "slicewise-gpu.sock", _one),
        OfferedResource(slicewise.CORES, "slicewise-cores.sock", _percents),
        OfferedResource(slicewise.MEMORY, "slicewise-memory.sock", _units(1)),
    ),
)
_NVIDIA: Final = OfferedEdition(
    "nvidia", "gpuscheduler", (OfferedResource(gpuscheduler.GPU, "nvidia-gpu.sock", _one),)
)


def _tkestack(name: str, names: tkestack.TkestackNames, prefix: str) -> OfferedEdition:
    # gpu-manager's memory resource brings nothing: a container has GPUs by its cores alone.
    memory = _units(names.memory_unit)
    return OfferedEdition(
        name,
        "tkestack",
        (
            OfferedResource(
                names.core, f"{prefix}vcore.sock", _percents, env=_LIBRARIES, annotation_unit=1
            ),
            OfferedResource(
                names.memory,
                f"{prefix}vmemory.sock",
                memory,
                carries=False,
                annotation_unit=names.memory_unit << 20,
            ),
        ),
    )


def _gpushare(unit: MiB) -> OfferedEdition:
    names = gpushare.GpushareNames(unit)
    memory = OfferedResource(names.memory, "aliyungpushare.sock", _units(unit))
    return OfferedEdition("gpushare", "gpushare", (memory,), ((names.count, _one),))


def _elastic(name: str, names: elastic.ElasticNames, socket: str, prefix: str) -> OfferedEdition:
    # The hash in the links' names knows no resource, so no two resources may share an id.
    if names.memory is None:
        core = OfferedResource(names.core, f"{socket}.sock", _percents, prefix=prefix, by_gpu=True)
        return OfferedEdition(name, "elastic", (core,))
    return OfferedEdition(
        name,
        "elastic",
        (
            OfferedResource(
                names.core, f"{socket}-core.sock", _percents, prefix=prefix, by_gpu=True
            ),
            OfferedResource(names.memory, f"{socket}-mem.sock", _units(1), prefix=f"{prefix}m"),
        ),
    )
