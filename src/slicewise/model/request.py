"""What a pod asks for: shares of GPUs per container, and constraints on the GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from slicewise.model.amounts import (
    FULL,
    MAX_CONTAINERS,
    MAX_GPUS_PER_NODE,
    MAX_MEMORY,
    MiB,
    Percent,
)
from slicewise.model.errors import DialectError
from slicewise.model.gpu import Host


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """A part of one GPU: percent of its compute and MiB of its memory.

    100 percent is the whole GPU with all its memory; 0 percent is memory alone.
    """

    cores: Percent
    memory: MiB = MiB(0)

    def __post_init__(self) -> None:
        if not 0 <= self.cores <= FULL:
            raise DialectError(f"share of {self.cores} percent: expected 0 to 100")
        if not 0 <= self.memory <= MAX_MEMORY:
            raise DialectError(f"share of {self.memory} MiB: expected 0 to {MAX_MEMORY}")
        if self.cores == 0 and self.memory == 0:
            raise DialectError("share of 0 percent and 0 MiB: expected a part of a GPU")

    @property
    def whole(self) -> bool:
        return self.cores == FULL


WHOLE_GPU = Share(FULL)


class Role(Enum):
    """When a container runs: before the others, beside them from early on, or as the pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The shares one container asks for; each is on a different GPU."""

    name: str
    shares: tuple[Share, ...]
    role: Role = Role.MAIN

    def __post_init__(self) -> None:
        if not self.shares:
            raise DialectError(f"container {self.name}: expected at least one share")
        if len(self.shares) > MAX_GPUS_PER_NODE:
            raise DialectError(
                f"container {self.name}: {len(self.shares)} GPUs asked for, "
                f"expected at most {MAX_GPUS_PER_NODE}"
            )


class Nearness(IntEnum):
    """How near several GPUs should be, nearest first."""

    NVLINK = 0
    PCIE = 1
    NUMA = 2


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """GPUs at least this near: demanded when strict, otherwise preferred."""

    nearness: Nearness
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    models: tuple[str, ...] = ()
    models_refused: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    uuids_refused: tuple[str, ...] = ()
    topology: TopologyConstraint | None = None
    together: bool = False
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """All that one pod asks for; `containers` names only those that want a GPU.

    Containers stand in the order they start: init containers and sidecars, then the rest.
    A resource is `lone` where a container asks for its GPUs by that one alone.
    """

    containers: tuple[ContainerRequest, ...] = ()
    constraints: Constraints = Constraints()
    host: Host = Host()
    lone: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(self.containers) > MAX_CONTAINERS:
            raise DialectError(
                f"{len(self.containers)} containers ask for GPUs, expected at most {MAX_CONTAINERS}"
            )
        names = [container.name for container in self.containers]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DialectError(f"container name {twice!r} is used twice")
        if self.constraints.together:
            counts = {len(container.shares) for container in self.containers}
            if len(counts) > 1:
                raise DialectError(
                    f"containers on the same GPUs ask for {sorted(counts)} GPUs: expected one count"
                )


class Phased(Protocol):
    """Any container: it has a name and runs when its role says."""

    @property
    def name(self) -> str:
        """What its pod calls it."""

    @property
    def role(self) -> Role:
        """When it runs."""


def phases(containers: Sequence[Phased]) -> Iterator[tuple[int, ...]]:
    """Which containers run at the same time, as positions: the last phase is the pod itself.

    An init container runs beside the sidecars started before it, and alone otherwise.
    """
    sidecars: tuple[int, ...] = ()
    for at, container in enumerate(containers):
        if container.role is Role.SIDECAR:
            sidecars = (*sidecars, at)
        elif container.role is Role.INIT:
            yield (*sidecars, at)
    main = tuple(at for at, container in enumerate(containers) if container.role is Role.MAIN)
    yield (*sidecars, *main)
