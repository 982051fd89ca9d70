"""Exact packing of several groups of shares on one node, within the steps of its decision.

What cannot fit is first told by counting. The search then puts the largest groups on the tightest
GPUs, and never looks twice at GPUs that are alike nor at what is left when that was seen to fail.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from slicewise.model import FULL, NodeState, Request, Role
from slicewise.placement.budget import StepBudget
from slicewise.placement.groups import Group, split
from slicewise.placement.quota_limits import QuotaLimits, admitted_gpus
from slicewise.placement.topology import nearest

Gpus = tuple[int, ...]
# What it costs to begin, in steps.
_START: Final = 8


class FreeGpu(NamedTuple):
    """What is free of one GPU, and whether nobody holds any part of it."""

    cores: int
    memory: int
    whole: bool


FreeTable = tuple[FreeGpu, ...]


class Undecided(Enum):
    """The answer when the steps ended before there was another."""

    STEPS_ENDED = "steps ended"


UNDECIDED: Final = Undecided.STEPS_ENDED
Found = tuple[Gpus, ...] | None | Undecided


def search(
    state: NodeState, groups: Sequence[Group], gpus: Sequence[int], budget: StepBudget
) -> Found:
    """GPU positions per group if the groups fit together; tightest GPUs are tried first."""
    table, order = free_table(state, gpus)
    return place_found(find(table, groups, budget), order)


def free_table(state: NodeState, gpus: Sequence[int]) -> tuple[FreeTable, Gpus]:
    """What is free of those of these GPUs that are usable, tightest first, and where each is."""
    rows = sorted(
        (FreeGpu(state.free_cores(at), state.free_memory(at), state.untouched(at)), at)
        for at in gpus
        if state.node.gpus[at].usable and state.free_cores(at) >= 0 <= state.free_memory(at)
    )
    return tuple(free for free, _ in rows), tuple(at for _, at in rows)


def place_found(found: Found, order: Sequence[int]) -> Found:
    """What was found in a table, at the positions that its rows have on a node."""
    if found is None or isinstance(found, Undecided):
        return found
    return tuple(tuple(sorted(order[at] for at in gpus)) for gpus in found)


def find(table: FreeTable, groups: Sequence[Group], budget: StepBudget) -> Found:
    """Rows of the table for each group, None when there are none, or that the steps ended."""
    # Counting takes time by the sizes of both.
    if not budget.take(_START + len(groups) * len(table) // 3):
        return UNDECIDED
    if counted_out(table, groups):
        return None
    try:
        return _Search(table, groups, budget).run()
    except _StepsEndedError:
        return UNDECIDED


def feasible(
    state: NodeState, request: Request, limits: QuotaLimits, budget: StepBudget | None = None
) -> bool:
    """Whether this one node can take the request as it is now, as far as the steps can tell."""
    request = request.on(state.node)
    host, asked = state.node.host, request.host
    if host is not None and (
        host.cpu - state.cpu < asked.cpu or host.memory - state.host_memory < asked.memory
    ):
        return False
    groups = split(request)
    if not groups:
        return True
    if limits.pools is not None and state.node.pool not in limits.pools:
        return False
    if request.lone & state.node.counted:
        return False
    budget = StepBudget() if budget is None else budget
    if not budget.take(_START + len(groups) * len(state.node.gpus) // 8):
        return False
    gpus = admitted_gpus(state, request, limits)
    topology = request.constraints.topology
    if topology is not None and topology.strict and any(group.count > 1 for group in groups):
        return len(groups) == 1 and _linked(state, groups[0], gpus, request)
    found = search(state, groups, gpus, budget)
    return found is not None and found is not UNDECIDED


def counted_out(table: FreeTable, groups: Sequence[Group]) -> bool:
    """Whether sums alone tell that the groups do not fit together.

    Each group needs so many GPUs with room, each container as many as it has shares; of shares
    that take at least so much, a GPU holds only so many.
    """
    for group in groups:
        if sum(_fits(free, group) for free in table) < group.count:
            return True
    if len(groups) < 2:
        return False
    return _too_many_of_a_container(table, groups) or _too_large_together(table, groups)


def _too_many_of_a_container(table: FreeTable, groups: Sequence[Group]) -> bool:
    shares: dict[int, list[Group]] = {}
    for group in groups:
        shares.setdefault(group.container, []).append(group)
    return any(
        sum(any(_fits(free, group) for group in each) for free in table)
        < sum(group.count for group in each)
        for each in shares.values()
        if len(each) > 1
    )


def _too_large_together(table: FreeTable, groups: Sequence[Group]) -> bool:
    running = [group for group in groups if group.role is not Role.INIT]
    whole = sum(group.count for group in running if group.whole)
    if whole > sum(free.whole for free in table):
        return True
    cores = sorted((max(free.cores, 0) for free in table), reverse=True)
    memory = sorted((max(free.memory, 0) for free in table), reverse=True)
    return _exceeds(cores, [(group.cores, group.count) for group in running]) or _exceeds(
        memory, [(group.memory, group.count) for group in running if not group.whole]
    )


def _exceeds(free: Sequence[int], asked: Sequence[tuple[int, int]]) -> bool:
    """Whether amounts asked for, each so often, are more than there is or cannot be cut from it."""
    if sum(amount * count for amount, count in asked) > sum(free):
        return True
    for least in sorted({amount for amount, _ in asked if amount}, reverse=True):
        number = sum(count for amount, count in asked if amount >= least)
        if number > sum(each // least for each in free):
            return True
    return False


def _fits(free: FreeGpu, group: Group) -> bool:
    if group.whole:
        return free.whole and free.memory >= group.memory
    return free.cores >= group.cores and free.memory >= group.memory


def _linked(state: NodeState, group: Group, gpus: Sequence[int], request: Request) -> bool:
    usable = (at for at in gpus if state.node.gpus[at].usable)
    room = tuple(at for at in usable if state.fits(at, group))
    return nearest(state.node, room, group.count, request.constraints.topology) is not None


class _StepsEndedError(Exception):
    """Leaves the search from any depth."""


class _Search:
    """A depth-first search over the rows of one table."""

    def __init__(self, table: FreeTable, groups: Sequence[Group], budget: StepBudget) -> None:
        self._groups = groups
        self._running = [at for at, each in enumerate(groups) if each.role is not Role.INIT]
        self._inits = _by_container(groups)
        self._free = list(table)
        # What is free beside the sidecars alone, which is what init containers find.
        self._early = list(table)
        self._budget = budget
        self._found: list[Gpus] = [()] * len(groups)
        self._taken: dict[int, set[int]] = {}
        self._failed: set[tuple[object, ...]] = set()
        # Per running group: the compute and memory that it and those after it ask for.
        self._rest = [_sum(groups, self._running[at:]) for at in range(len(self._running))]
        early = any(groups[at].role is Role.SIDECAR for at in self._running)
        self._sees_early = early and bool(self._inits)
        containers = [groups[at].container for at in self._running]
        self._open = {each for each in containers if containers.count(each) > 1}

    def run(self) -> tuple[Gpus, ...] | None:
        # Without sidecars init containers find the same wherever the others are.
        if not self._place_inits():
            return None
        return tuple(self._found) if self._place(0) else None

    def _place(self, at: int) -> bool:
        if at == len(self._running):
            return self._place_inits()
        group = self._groups[self._running[at]]
        self._step(1 + len(self._free) // 16)
        key = self._key(at)
        if key in self._failed:
            return False
        if self._has_rest(at):
            taken = self._taken.get(group.container, ())
            room = [
                gpu
                for gpu, free in enumerate(self._free)
                if gpu not in taken and _fits(free, group)
            ]
            room.sort(key=lambda gpu: (self._free[gpu], gpu))
            if len(room) >= group.count and self._choose(at, room, 0, []):
                return True
        self._failed.add(key)
        return False

    def _choose(self, at: int, room: list[int], start: int, chosen: list[int]) -> bool:
        group = self._groups[self._running[at]]
        if len(chosen) == group.count:
            self._found[self._running[at]] = tuple(sorted(chosen))
            return self._place(at + 1)
        tried = None
        for place in range(start, len(room) - group.count + len(chosen) + 1):
            gpu = room[place]
            like = self._like(gpu)
            if like == tried:
                continue
            tried = like
            self._step(1)
            before = self._free[gpu], self._early[gpu]
            self._charge(group, gpu)
            chosen.append(gpu)
            if self._choose(at, room, place + 1, chosen):
                return True
            chosen.pop()
            self._taken[group.container].discard(gpu)
            self._free[gpu], self._early[gpu] = before
        return False

    def _charge(self, group: Group, gpu: int) -> None:
        self._free[gpu] = _less(self._free[gpu], group)
        if group.role is Role.SIDECAR:
            self._early[gpu] = _less(self._early[gpu], group)
        self._taken.setdefault(group.container, set()).add(gpu)

    def _like(self, gpu: int) -> tuple[object, ...]:
        """What tells GPUs apart for the groups that are still to be placed."""
        like: tuple[object, ...] = self._free[gpu]
        if self._sees_early:
            like = (*like, self._early[gpu])
        if self._open:
            like = (*like, *sorted(each for each in self._open if gpu in self._taken.get(each, ())))
        return like

    def _key(self, at: int) -> tuple[object, ...]:
        if self._sees_early or self._open:
            return (at, *sorted(map(self._like, range(len(self._free))), key=repr))
        return (at, *sorted(self._free))

    def _has_rest(self, at: int) -> bool:
        """Whether GPUs that can take any of the groups left have enough for all of them."""
        cores, memory, least_cores, least_memory = self._rest[at]
        for free in self._free:
            if free.cores >= least_cores and free.memory >= least_memory:
                cores -= free.cores
                memory -= free.memory
        return cores <= 0 and memory <= 0

    def _place_inits(self) -> bool:
        """Init containers run before the others, beside the sidecars alone."""
        used = {
            gpu
            for at in self._running
            if self._groups[at].role is Role.MAIN
            for gpu in self._found[at]
        }
        order = sorted(
            range(len(self._free)), key=lambda gpu: (gpu not in used, self._free[gpu].cores, gpu)
        )
        for members in self._inits:
            slots = [at for at in members for _ in range(self._groups[at].count)]
            holder: dict[int, int] = {}
            for slot in range(len(slots)):
                if not self._match(slot, slots, order, holder, set()):
                    return False
            for at in members:
                gpus = sorted(gpu for gpu, slot in holder.items() if slots[slot] == at)
                self._found[at] = tuple(gpus)
        return True

    def _match(
        self, slot: int, slots: list[int], order: list[int], holder: dict[int, int], seen: set[int]
    ) -> bool:
        """Give the share a GPU of its own, moving others of its container if need be."""
        group = self._groups[slots[slot]]
        self._step(1 + len(order) // 16)
        room = [gpu for gpu in order if gpu not in seen and _fits(self._early[gpu], group)]
        for gpu in room:
            if gpu not in holder:
                holder[gpu] = slot
                return True
        for gpu in room:
            # Another share of the same group would find the same GPUs.
            if slots[holder[gpu]] == slots[slot] or gpu in seen:
                continue
            seen.add(gpu)
            if self._match(holder[gpu], slots, order, holder, seen):
                holder[gpu] = slot
                return True
        return False

    def _step(self, steps: int) -> None:
        if not self._budget.take(steps):
            raise _StepsEndedError


def _less(free: FreeGpu, group: Group) -> FreeGpu:
    if group.whole:
        return FreeGpu(free.cores - FULL, 0, False)
    return FreeGpu(free.cores - group.cores, free.memory - group.memory, False)


def _by_container(groups: Sequence[Group]) -> list[list[int]]:
    """The init groups of each container, by position."""
    found: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        if group.role is Role.INIT:
            found.setdefault(group.container, []).append(at)
    return list(found.values())


def _sum(groups: Sequence[Group], at: Sequence[int]) -> tuple[int, int, int, int]:
    """Compute and memory that groups ask for in all, and the least of each in one share."""
    left = [groups[each] for each in at]
    return (
        sum(group.demand for group in left),
        sum(group.count * group.memory for group in left),
        min(group.cores for group in left),
        min(group.memory for group in left),
    )
