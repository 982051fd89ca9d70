"""Exact packing of several groups of shares on one node, within a bounded number of steps."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from slicewise.model import NodeState, Request, Role, fits
from slicewise.placement.explain import admitted_gpus
from slicewise.placement.groups import Group, split
from slicewise.placement.quota_limits import QuotaLimits
from slicewise.placement.topology import nearest

_STEPS: Final = 20000

Gpus = tuple[int, ...]


def search(
    state: NodeState, groups: Sequence[Group], gpus: Sequence[int]
) -> tuple[Gpus, ...] | None:
    """GPU positions per group if the groups fit together; tightest GPUs are tried first."""
    return _Search(state, groups, gpus).run()


def feasible(state: NodeState, request: Request, limits: QuotaLimits) -> bool:
    """Whether this one node can take the request as it is now."""
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
    gpus = admitted_gpus(state, request, limits)
    topology = request.constraints.topology
    if topology is not None and topology.strict and any(group.count > 1 for group in groups):
        return len(groups) == 1 and _linked(state, groups[0], gpus, request)
    return search(state, groups, gpus) is not None


def _linked(state: NodeState, group: Group, gpus: Sequence[int], request: Request) -> bool:
    room = _Search(state, (group,), gpus).room(group)
    return nearest(state.node, tuple(room), group.count, request.constraints.topology) is not None


class _Search:
    """A depth-first search that gives up after a fixed number of steps."""

    def __init__(self, state: NodeState, groups: Sequence[Group], gpus: Sequence[int]) -> None:
        self._groups = groups
        self._listed = state.node.gpus
        self._gpus = [at for at in gpus if self._listed[at].usable]
        self._cores = {at: state.free_cores(at) for at in self._gpus}
        self._memory = {at: state.free_memory(at) for at in self._gpus}
        self._steps = _STEPS
        self._found: list[Gpus] = []

    def run(self) -> tuple[Gpus, ...] | None:
        return tuple(self._found) if self._place(0, {}) else None

    def room(self, group: Group) -> list[int]:
        """The GPUs with room for one share of the group."""
        return [
            at
            for at in self._gpus
            if fits(group, self._listed[at], self._cores[at], self._memory[at])
        ]

    def _place(self, at: int, taken: dict[int, set[int]]) -> bool:
        if at == len(self._groups):
            return True
        group = self._groups[at]
        if group.role is Role.INIT:
            return self._place_init(at, taken)
        room = [gpu for gpu in self.room(group) if gpu not in taken.get(group.container, ())]
        room.sort(key=lambda gpu: (self._cores[gpu], self._memory[gpu], gpu))
        for chosen in combinations(room, group.count):
            self._steps -= 1
            if self._steps < 0:
                return False
            self._charge(group, chosen, 1)
            self._found.append(tuple(sorted(chosen)))
            more = {**taken, group.container: taken.get(group.container, set()) | set(chosen)}
            if self._place(at + 1, more):
                return True
            self._found.pop()
            self._charge(group, chosen, -1)
        return False

    def _place_init(self, at: int, taken: dict[int, set[int]]) -> bool:
        """An init container runs before the others, beside the sidecars alone."""
        group = self._groups[at]
        held = [
            (other, gpus)
            for other, gpus in zip(self._groups, self._found, strict=False)
            if other.role is Role.MAIN
        ]
        for other, gpus in held:
            self._charge(other, gpus, -1)
        room = self.room(group)
        for other, gpus in held:
            self._charge(other, gpus, 1)
        used = {gpu for _, gpus in held for gpu in gpus}
        room = [gpu for gpu in room if gpu not in taken.get(group.container, ())]
        room.sort(key=lambda gpu: (gpu not in used, self._cores[gpu], gpu))
        if len(room) < group.count:
            return False
        chosen = tuple(sorted(room[: group.count]))
        self._found.append(chosen)
        more = {**taken, group.container: taken.get(group.container, set()) | set(chosen)}
        if self._place(at + 1, more):
            return True
        self._found.pop()
        return False

    def _charge(self, group: Group, gpus: Gpus, sign: int) -> None:
        for gpu in gpus:
            self._cores[gpu] -= sign * group.cores
            self._memory[gpu] -= sign * (self._listed[gpu].memory if group.whole else group.memory)
