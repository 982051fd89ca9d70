"""Exact packing of several groups of shares on one node, within a bounded number of steps."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from slicewise.model import NodeState, Request, Role
from slicewise.placement.explain import admitted_cards
from slicewise.placement.grant import Grant
from slicewise.placement.groups import Group, split
from slicewise.placement.topology import nearest

_STEPS: Final = 20000

Cards = tuple[int, ...]


def search(
    state: NodeState, groups: Sequence[Group], cards: Sequence[int]
) -> tuple[Cards, ...] | None:
    """Card positions per group if the groups fit together; tightest cards are tried first."""
    return _Search(state, groups, cards).run()


def feasible(state: NodeState, request: Request, grant: Grant) -> bool:
    """Whether this one node can take the request as it is now."""
    host, asked = state.node.host, request.host
    if host is not None and (
        host.cpu - state.cpu < asked.cpu or host.memory - state.host_memory < asked.memory
    ):
        return False
    groups = split(request)
    if not groups:
        return True
    if grant.pools is not None and state.node.pool not in grant.pools:
        return False
    if request.lone & state.node.counted:
        return False
    cards = admitted_cards(state, request, grant)
    wish = request.constraints.topology
    if wish is not None and wish.strict and any(group.count > 1 for group in groups):
        return len(groups) == 1 and _linked(state, groups[0], cards, request)
    return search(state, groups, cards) is not None


def _linked(state: NodeState, group: Group, cards: Sequence[int], request: Request) -> bool:
    room = _Search(state, (group,), cards).room(group)
    return nearest(state.node, tuple(room), group.count, request.constraints.topology) is not None


class _Search:
    """A depth-first search that gives up after a fixed number of steps."""

    def __init__(self, state: NodeState, groups: Sequence[Group], cards: Sequence[int]) -> None:
        self._groups = groups
        self._cards = [at for at in cards if state.node.gpus[at].usable]
        self._cores = {at: state.free_cores(at) for at in self._cards}
        self._memory = {at: state.free_memory(at) for at in self._cards}
        self._untouched = {at: state.untouched(at) for at in self._cards}
        self._size = {at: int(state.node.gpus[at].memory) for at in self._cards}
        self._steps = _STEPS
        self._found: list[Cards] = []

    def run(self) -> tuple[Cards, ...] | None:
        return tuple(self._found) if self._place(0, {}) else None

    def room(self, group: Group) -> list[int]:
        """The cards with room for one share of the group."""
        return [card for card in self._cards if self._fits(card, group)]

    def _place(self, at: int, taken: dict[int, set[int]]) -> bool:
        if at == len(self._groups):
            return True
        group = self._groups[at]
        if group.role is Role.INIT:
            return self._place_init(at, taken)
        room = [card for card in self.room(group) if card not in taken.get(group.container, ())]
        room.sort(key=lambda card: (self._cores[card], self._memory[card], card))
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
            (other, cards)
            for other, cards in zip(self._groups, self._found, strict=False)
            if other.role is Role.MAIN
        ]
        for other, cards in held:
            self._charge(other, cards, -1)
        room = self.room(group)
        for other, cards in held:
            self._charge(other, cards, 1)
        used = {card for _, cards in held for card in cards}
        room = [card for card in room if card not in taken.get(group.container, ())]
        room.sort(key=lambda card: (card not in used, self._cores[card], card))
        if len(room) < group.count:
            return False
        chosen = tuple(sorted(room[: group.count]))
        self._found.append(chosen)
        more = {**taken, group.container: taken.get(group.container, set()) | set(chosen)}
        if self._place(at + 1, more):
            return True
        self._found.pop()
        return False

    def _fits(self, card: int, group: Group) -> bool:
        if group.whole:
            return self._untouched[card] and self._size[card] >= group.memory
        return self._cores[card] >= group.cores and self._memory[card] >= group.memory

    def _charge(self, group: Group, cards: Cards, sign: int) -> None:
        for card in cards:
            self._cores[card] -= sign * group.cores
            self._memory[card] -= sign * (self._size[card] if group.whole else group.memory)
            self._untouched[card] = (
                self._cores[card] == 100 and self._memory[card] == self._size[card]
            )
