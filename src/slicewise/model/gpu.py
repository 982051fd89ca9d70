"""GPUs and nodes: fixed facts of the hardware, and the health of each GPU."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from slicewise.model.amounts import MiB, MilliCpu
from slicewise.model.bounds import MAX_GPUS_PER_NODE, MAX_MEMORY
from slicewise.model.errors import InventoryError
from slicewise.model.isolation import NOT_ISOLATED, OfferedIsolation

_NOTHING_STARTED: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its node's driver enumerates it."""

    index: int
    uuid: str
    model: str
    memory: MiB
    minor: int
    numa: int | None = None
    healthy: bool = True
    mig: bool = False
    cordoned: bool = False
    isolation: OfferedIsolation = NOT_ISOLATED
    claims: bool = False
    """Whether it is given out by ResourceClaims alone."""
    shared: bool = False
    """Whether ResourceClaims get parts of it beside pods that ask by resource names."""

    @property
    def device(self) -> str:
        """Its name among devices: a UUID is the same after GPUs were added or moved."""
        return self.uuid.lower()

    @property
    def closed(self) -> str:
        """Why claims get nothing of it; empty when they do."""
        if not (self.claims or self.shared):
            return "not offered to claims"
        if self.mig:
            return "split by MIG"
        return "cordoned" if self.cordoned else "" if self.healthy else "unhealthy"

    @property
    def usable(self) -> bool:
        """Whether shares of this GPU may be allocated to pods that ask by resource names."""
        return self.healthy and not (self.mig or self.cordoned or self.claims)


@dataclass(frozen=True, slots=True)
class Links:
    """How near the GPUs of a node are: NVLink lanes and PCIe level of every pair.

    PCIe levels are NVML's common-ancestor values: 0 one board, 10 one switch, 20 several
    switches, 30 one host bridge, 40 one NUMA node, 50 across the system.
    """

    nvlinks: tuple[tuple[int, ...], ...]
    pcie: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Host:
    """CPU and main memory: what a node has, or what a pod asks for beside its GPUs."""

    cpu: MilliCpu = MilliCpu(0)
    memory: MiB = MiB(0)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with its GPUs in index order; GPUs may differ in model and size.

    `agent` says that Slicewise's own agent serves the GPUs, and so waits for pods' records.
    Resources that are only `counted` there bring a container no GPU by themselves.
    `started` has what the agent says that pods' containers were given, by UID and name, where
    their records do not tell: the UUIDs of GPUs.
    Systems that are `unlimited` there run their containers without limits unless a pod names some.
    `memory_unit` is what one unit of memory means there to systems that leave it to the node.
    """

    name: str
    gpus: tuple[Gpu, ...] = ()
    links: Links | None = None
    host: Host | None = None
    pool: str | None = None
    agent: bool = False
    counted: frozenset[str] = frozenset()
    unlimited: frozenset[str] = frozenset()
    started: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=lambda: _NOTHING_STARTED, hash=False
    )
    memory_unit: MiB | None = None

    def __post_init__(self) -> None:
        check_gpus(self.name, self.gpus)
        if self.links is not None:
            _check_links(self.name, len(self.gpus), self.links)

    def position(self, index: int) -> int | None:
        """The position in `gpus` of the GPU with this index, if the node has it."""
        if 0 <= index < len(self.gpus) and self.gpus[index].index == index:
            return index
        return next((at for at, gpu in enumerate(self.gpus) if gpu.index == index), None)

    def is_usable(self, index: int) -> bool:
        """Whether the node has a GPU of this index and shares of it may be allocated."""
        at = self.position(index)
        return at is not None and self.gpus[at].usable


def check_gpus(name: str, gpus: Sequence[Gpu]) -> None:
    """Raise if a node lists a GPU twice, out of order, or of impossible size."""
    if len(gpus) > MAX_GPUS_PER_NODE:
        raise InventoryError(
            f"node {name}: {len(gpus)} GPUs listed, expected at most {MAX_GPUS_PER_NODE}"
        )
    _refuse_repeats(name, "uuid", (gpu.uuid for gpu in gpus))
    _refuse_repeats(name, "index", (gpu.index for gpu in gpus))
    _refuse_repeats(name, "minor", (gpu.minor for gpu in gpus))
    for before, gpu in zip((None, *gpus), gpus, strict=False):
        if gpu.index < 0 or (before is not None and gpu.index < before.index):
            raise InventoryError(
                f"node {name}: gpu index {gpu.index}: expected ascending indexes from 0"
            )
        if not 0 < gpu.memory <= MAX_MEMORY:
            raise InventoryError(
                f"node {name}: gpu {gpu.index} memory={gpu.memory}: expected MiB above 0"
            )


def _refuse_repeats(name: str, what: str, values: Iterable[Hashable]) -> None:
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            raise InventoryError(f"node {name}: gpu {what} {value!r} is listed twice")
        seen.add(value)


def _check_links(name: str, count: int, links: Links) -> None:
    for what, matrix in (("nvlinks", links.nvlinks), ("pcie", links.pcie)):
        if len(matrix) != count or any(len(row) != count for row in matrix):
            raise InventoryError(f"node {name}: links.{what}: expected {count} rows of {count}")
        if any(matrix[a][b] != matrix[b][a] for a in range(count) for b in range(a)):
            raise InventoryError(f"node {name}: links.{what}: expected a symmetric matrix")
