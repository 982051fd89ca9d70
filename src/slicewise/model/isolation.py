"""Isolation tiers: what keeps a container within its share, for memory and for compute.

A tier is what somebody offers, asks for or promises; which code keeps it is the agent's matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from slicewise.model.amounts import FULL


class IsolationTier(IntEnum):
    """How strongly a limit holds, weakest first; `driver` exists for memory alone."""

    NONE = 0
    HOOK = 1
    MPS = 2
    DRIVER = 3

    @property
    def word(self) -> str:
        """As annotations, labels and metrics write it."""
        return self.name.lower()


MEMORY_TIERS: Final = tuple(IsolationTier)
COMPUTE_TIERS: Final = (IsolationTier.NONE, IsolationTier.HOOK, IsolationTier.MPS)
_SHIFT: Final = 2
_LOW: Final = (1 << _SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Isolation:
    """One tier for memory and one for compute."""

    memory: IsolationTier = IsolationTier.NONE
    compute: IsolationTier = IsolationTier.NONE

    def __str__(self) -> str:
        return f"{self.memory.word}/{self.compute.word}"

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return bool(self.memory or self.compute)


UNLIMITED_USE: Final = Isolation()
HOOKED: Final = Isolation(IsolationTier.HOOK, IsolationTier.HOOK)
STRONGEST: Final = Isolation(IsolationTier.DRIVER, IsolationTier.HOOK)


@dataclass(frozen=True, slots=True)
class OfferedIsolation:
    """The tiers that one GPU offers, beside none at all.

    `by` names another system whose library limits containers there, and `why` says what keeps
    stronger tiers from being offered. A driver tier that was not tested on the node serves nobody.
    """

    memory: tuple[IsolationTier, ...] = ()
    compute: tuple[IsolationTier, ...] = ()
    driver_untested: bool = False
    by: str = field(default="", compare=False)
    why: str = field(default="", compare=False)
    code: int = field(init=False, default=0)
    """The best of both as one number, for the engine's tables."""

    def __post_init__(self) -> None:
        best = self.best
        object.__setattr__(self, "code", best.memory << _SHIFT | best.compute)

    @property
    def best(self) -> Isolation:
        """The strongest tier of each resource."""
        none = IsolationTier.NONE
        return Isolation(max(self.memory, default=none), max(self.compute, default=none))


NOT_ISOLATED: Final = OfferedIsolation()


def show_isolation(cores: int, promised: Isolation | None) -> str:
    """The isolation of a slice of so much compute, as tables show it."""
    if cores == FULL:
        return "whole"
    return str(promised) if promised else IsolationTier.NONE.word


def code_meets(code: int, least: Isolation) -> bool:
    """Whether a GPU that offers at best this is isolated as demanded."""
    return code >> _SHIFT >= least.memory and code & _LOW >= least.compute


@dataclass(frozen=True, slots=True)
class IsolationWish:
    """What a pod or a namespace names of each resource; None where it names nothing.

    `NONE` is an opt-out: the container is to run without a limit.
    """

    memory: IsolationTier | None = None
    compute: IsolationTier | None = None

    @property
    def least(self) -> Isolation:
        """The least tiers that serve it."""
        none = IsolationTier.NONE
        return Isolation(self.memory or none, self.compute or none)


NO_WISH: Final = IsolationWish()


@dataclass(frozen=True, slots=True)
class IsolationRules:
    """What a namespace demands of its pods' isolation, and whether they may go without.

    While the rules cannot be read, as `unreadable` says, no share is allocated.
    """

    floor: Isolation = UNLIMITED_USE
    may_opt_out: bool = False
    unreadable: str = ""

    def forbids(self, wish: IsolationWish) -> bool:
        """Whether the pod opts out of a limit that its namespace does not let it opt out of."""
        pairs = ((wish.memory, self.floor.memory), (wish.compute, self.floor.compute))
        return any(
            named is IsolationTier.NONE and (not self.may_opt_out or floor > IsolationTier.NONE)
            for named, floor in pairs
        )


NO_RULES: Final = IsolationRules()


def least_isolation(cores: Iterable[int], wish: IsolationWish, rules: IsolationRules) -> Isolation:
    """What GPUs must offer at least to shares of so much compute each.

    Whole GPUs need no limits, and memory alone needs none of compute.
    """
    parts = [each for each in cores if each != FULL]
    if not parts:
        return UNLIMITED_USE
    named, floor = wish.least, rules.floor
    compute = max(named.compute, floor.compute) if any(parts) else IsolationTier.NONE
    return Isolation(max(named.memory, floor.memory), compute)


def promise(
    held: Iterable[tuple[int, OfferedIsolation]],
    *,
    wish: IsolationWish,
    rules: IsolationRules = NO_RULES,
    usual: Isolation = STRONGEST,
) -> Isolation | None:
    """What a container is promised that holds so much compute of GPUs which offer this.

    It is the strongest that is offered: up to what the pod's system usually has where nothing is
    named. MPS changes what a container sees, so it is for those who name it. None is for a
    container of whole GPUs alone.
    """
    parts = [(cores, offered) for cores, offered in held if cores != FULL]
    if not parts:
        return None
    least = least_isolation([cores for cores, _ in parts], wish, rules)
    memory = [_choose(each.memory, wish.memory, least.memory, usual.memory) for _, each in parts]
    compute = [
        _choose(each.compute, wish.compute, least.compute, usual.compute)
        for cores, each in parts
        if cores
    ]
    return Isolation(min(memory), min(compute, default=IsolationTier.NONE))


def _choose(
    offered: tuple[IsolationTier, ...],
    named: IsolationTier | None,
    least: IsolationTier,
    usual: IsolationTier,
) -> IsolationTier:
    if named is IsolationTier.NONE and least is IsolationTier.NONE:
        return IsolationTier.NONE
    most = max(usual, least) if named is None else max(offered, default=IsolationTier.NONE)
    fit = [
        tier
        for tier in offered
        if tier <= most and (tier is not IsolationTier.MPS or least is IsolationTier.MPS)
    ]
    chosen = max(fit, default=IsolationTier.NONE)
    if chosen >= least:
        return chosen
    # Only a stronger tier than usual, or MPS unnamed, serves what is demanded.
    return min((tier for tier in offered if tier >= least), default=chosen)
