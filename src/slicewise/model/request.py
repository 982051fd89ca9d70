"""What a pod asks for: shares of GPUs per container, and constraints on the GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Protocol

from slicewise.model.amounts import FULL, MiB, Percent
from slicewise.model.bounds import (
    MAX_GPU_CONTAINERS,
    MAX_GPUS_PER_NODE,
    MAX_MEMORY,
    MAX_SHARES,
    MAX_UNEQUAL_SHARES,
)
from slicewise.model.errors import DialectError
from slicewise.model.gpu import Host, Node
from slicewise.model.isolation import NO_WISH, IsolationWish


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
    Shares of compute may borrow idle compute up to `ceiling`; without one, they are hard limits.
    Where memory was asked for in a unit that each node gives its own meaning, `memory_unit` is the
    meaning by which the shares were read, and `on` says what they are on another node.
    """

    containers: tuple[ContainerRequest, ...] = ()
    constraints: Constraints = Constraints()
    host: Host = Host()
    lone: frozenset[str] = frozenset()
    isolation: IsolationWish = NO_WISH
    ceiling: Percent | None = None
    memory_unit: MiB | None = None

    def __post_init__(self) -> None:
        self._check_lists()
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

    def on(self, node: Node) -> "Request":
        """What the pod asks for on this node."""
        return self.in_unit(node.memory_unit)

    def in_unit(self, unit: MiB | None) -> "Request":
        """What the pod asks for where a unit of memory means this much; None is the same as now."""
        if self.memory_unit is None or unit is None or unit == self.memory_unit:
            return self
        return _convert(self, unit)

    def _check_lists(self) -> None:
        shares = [len(each.shares) for each in self.containers]
        unequal = sum(len(set(each.shares)) for each in self.containers)
        for number, what, most in (
            (len(shares), "containers ask for GPUs", MAX_GPU_CONTAINERS),
            (sum(shares), "shares are asked for", MAX_SHARES),
            (unequal, "unequal shares are asked for", MAX_UNEQUAL_SHARES),
        ):
            if number > most:
                raise DialectError(f"{number} {what}: expected at most {most}")


@lru_cache(maxsize=4096)
def _convert(request: Request, unit: MiB) -> Request:
    """The request where its units of memory mean so much; more than any GPU has is kept so."""
    before = request.memory_unit or unit

    def convert(share: Share) -> Share:
        units = -(-share.memory // before)
        return replace(share, memory=MiB(min(units * unit, MAX_MEMORY)))

    containers = tuple(
        replace(each, shares=tuple(map(convert, each.shares))) for each in request.containers
    )
    return replace(request, containers=containers, memory_unit=unit)


class Phased(Protocol):
    """Any container: it has a name and runs when its role says."""

    @property
    def name(self) -> str:
        """What its pod calls it."""

    @property
    def role(self) -> Role:
        """When it runs."""


def peak_sum(containers: Sequence[Phased], amounts: Sequence[int]) -> int:
    """The most of an amount that the containers have at any time; one step for each of them."""
    sidecars = main = most = 0
    for container, amount in zip(containers, amounts, strict=True):
        if container.role is Role.SIDECAR:
            sidecars += amount
        elif container.role is Role.INIT:
            most = max(most, sidecars + amount)
        else:
            main += amount
    return max(most, sidecars + main)


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
