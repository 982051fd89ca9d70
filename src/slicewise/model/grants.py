"""What a node's agent may start: it adds up each GPU before each start, whatever was decided.

Containers that started hold what they were really granted. What remains goes to records, those of
pods that started already first, then the newer decision; a record that does not fit is refused
whole, and so takes nothing from older ones. Everything is a value, so that observers can tell from
API objects alone what the agents would start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from slicewise.model.allocation import Slice, peak
from slicewise.model.amounts import FULL
from slicewise.model.gpu import Node
from slicewise.model.request import Phased

Slices = Mapping[str, tuple[Slice, ...]]
"""Slices by the name of their container."""
NO_SLICES: Final[Slices] = MappingProxyType({})
_NAMED: Final = 3
_UNITS: Final = ("percent", "MiB")
_Amounts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PodGrants:
    """One pod of a node: what its record grants, and what its containers started with.

    `order` is that of its signed record; greater is newer, and records without one are oldest.
    """

    uid: str
    name: str
    containers: tuple[Phased, ...]
    recorded: Slices = field(default_factory=lambda: NO_SLICES)
    started: Slices = field(default_factory=lambda: NO_SLICES)
    order: tuple[int, int] = (0, 0)

    @property
    def held(self) -> tuple[Slice, ...]:
        """The most that its started containers hold of each GPU."""
        return peak(self.containers, self.started) if self.started else ()

    @property
    def claimed(self) -> tuple[Slice, ...]:
        """The same once every container of its record has started."""
        return peak(self.containers, {**self.recorded, **self.started})

    @property
    def waiting(self) -> bool:
        """Whether its record grants something to a container that has not started."""
        return any(name not in self.started for name in self.recorded)

    @property
    def rank(self) -> tuple[bool, tuple[int, int], str]:
        """Greater comes first where two records want the same."""
        return bool(self.started), self.order, self.uid


@dataclass(frozen=True, slots=True)
class GrantConflict:
    """A GPU on which others hold too much for a pod, or that is started beyond its size."""

    gpu: int
    unit: str
    total: int
    pod: str
    """The pod that may not start; empty where all have started."""
    needs: int
    """What it needs; what all hold together where all have started."""
    holders: tuple[tuple[str, int], ...]
    """The others and how much each holds, the most first."""

    def __str__(self) -> str:
        held = sum(amount for _, amount in self.holders)
        names = [name for name, _ in self.holders[:_NAMED]]
        if len(self.holders) > _NAMED:
            names.append(f"{len(self.holders) - _NAMED} more")
        who = f"pod {names[0]} holds" if len(names) == 1 else f"pods {', '.join(names)} hold"
        holds = f"{who if names else 'nobody holds'} {held} of {self.total} {self.unit}"
        if not self.pod:
            return f"gpu {self.gpu}: {holds}"
        return f"gpu {self.gpu}: pod {self.pod} needs {self.needs} {self.unit}, {holds}"


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Which pods' containers may start with what their records say, and why others may not."""

    started: tuple[PodGrants, ...]
    """Pods that hold something or may; `started` of each names all it would hold."""
    refused: Mapping[str, GrantConflict]
    """The others by UID."""


def what_would_start(node: Node, pods: Iterable[PodGrants]) -> StartPlan:
    """What the node's agent starts of these pods, if all of them want to start now."""
    book = _GpuBook(node)
    everyone = list(pods)
    for pod in everyone:
        book.take(pod, pod.held)
    refused: dict[str, GrantConflict] = {}
    granted: set[str] = set()
    for pod in sorted(everyone, key=lambda each: each.rank, reverse=True):
        if not pod.waiting:
            continue
        conflict = book.find_conflict(pod)
        if conflict is None:
            book.take(pod, pod.claimed, instead_of=pod.held)
            granted.add(pod.uid)
        else:
            refused[pod.uid] = conflict
    started = [
        replace(pod, started={**pod.recorded, **pod.started}) if pod.uid in granted else pod
        for pod in everyone
        if pod.uid in granted or pod.started
    ]
    return StartPlan(tuple(started), refused)


def find_overfull(node: Node, pods: Iterable[PodGrants]) -> tuple[GrantConflict, ...]:
    """The GPUs of which started containers hold more than there is."""
    book = _GpuBook(node)
    for pod in pods:
        book.take(pod, pod.held)
    return book.overfull()


class _GpuBook:
    """What is taken of each GPU, and by whom."""

    def __init__(self, node: Node) -> None:
        self._sizes = {gpu.index: (int(FULL), int(gpu.memory)) for gpu in node.gpus}
        self._taken: dict[int, _Amounts] = {}
        self._by: dict[int, dict[str, tuple[str, _Amounts]]] = {}

    def take(
        self, pod: PodGrants, charges: Sequence[Slice], instead_of: Sequence[Slice] = ()
    ) -> None:
        for sign, pieces in ((-1, instead_of), (1, charges)):
            for piece in pieces:
                cores, memory = self._taken.get(piece.gpu, (0, 0))
                more = (cores + sign * piece.cores, memory + sign * piece.memory)
                self._taken[piece.gpu] = more
        for piece in charges:
            amounts = (int(piece.cores), int(piece.memory))
            self._by.setdefault(piece.gpu, {})[pod.uid] = pod.name, amounts

    def find_conflict(self, pod: PodGrants) -> GrantConflict | None:
        """The first GPU that has no room for all that the pod's record grants."""
        before = {piece.gpu: piece for piece in pod.held}
        for piece in pod.claimed:
            own = before.get(piece.gpu)
            held = (0, 0) if own is None else (own.cores, own.memory)
            taken = self._taken.get(piece.gpu, (0, 0))
            most = self._sizes.get(piece.gpu, (0, 0))
            for at, needs in enumerate((int(piece.cores), int(piece.memory))):
                if needs > held[at] and taken[at] - held[at] + needs > most[at]:
                    return self._conflict(pod, piece.gpu, at, needs)
        return None

    def overfull(self) -> tuple[GrantConflict, ...]:
        return tuple(
            GrantConflict(gpu, _UNITS[at], total, "", taken[at], self._holders(gpu, at))
            for gpu, taken in sorted(self._taken.items())
            for at, total in enumerate(self._sizes.get(gpu, (0, 0)))
            if taken[at] > total
        )

    def _conflict(self, pod: PodGrants, gpu: int, at: int, needs: int) -> GrantConflict:
        holders = self._holders(gpu, at, pod.uid)
        total = self._sizes.get(gpu, (0, 0))[at]
        return GrantConflict(gpu, _UNITS[at], total, pod.name, needs, holders)

    def _holders(self, gpu: int, at: int, but: str = "") -> tuple[tuple[str, int], ...]:
        found = [
            (name, amounts[at])
            for uid, (name, amounts) in self._by.get(gpu, {}).items()
            if uid != but and amounts[at]
        ]
        return tuple(sorted(found, key=lambda each: (-each[1], each[0])))
