"""The claims of one pod, placed by the engine as if they were its containers.

Each request of a claim is a container: its `count` GPUs are different ones, and two requests may
share a GPU unless a constraint says otherwise. Requests that admit the same GPUs are placed
together; where they admit different ones, one after the other on the same node.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice, product
from typing import Final

from slicewise.model import (
    FULL,
    Allocation,
    Constraints,
    ContainerRequest,
    Gpu,
    Holding,
    Host,
    MiB,
    Percent,
    Request,
    Share,
    Slice,
    SlicewiseError,
    Snapshot,
    charge,
)
from slicewise.model.claim import ClaimedDevice
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.planner import Planner
from slicewise.placement.quota_limits import QuotaLimits

# Ways to choose among groups of GPUs, and nodes on which a second kind of GPU is looked for.
_MOST_WAYS: Final = 64
_MOST_NODES: Final = 16
_TRIED: Final = "claims being placed"


class ConstraintKind(Enum):
    ONE_GPU = "all on one GPU"
    DIFFERENT_GPUS = "each on another GPU"
    ONE_GROUP = "all in one group of GPUs"


@dataclass(frozen=True, slots=True)
class DeviceWish:
    """One request of a claim: so much of each of `count` GPUs; no memory is all of a GPU's."""

    claim: str
    request: str
    cores: int
    memory: MiB | None
    count: int = 1
    admitted: frozenset[str] | None = None
    """The UUIDs of the GPUs that may serve it; None is all."""


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """How the GPUs of some wishes, by position, belong together."""

    kind: ConstraintKind
    members: tuple[int, ...]
    groups: tuple[frozenset[str], ...] = ()
    """The groups by UUIDs, for those that want one."""


@dataclass(frozen=True, slots=True)
class ClaimsRequest:
    """Everything that the claims of one pod ask for, and the nodes that the pod may go to."""

    wishes: tuple[DeviceWish, ...]
    nodes: Collection[str]
    constraints: tuple[DeviceConstraint, ...] = ()
    host: Host = field(default_factory=Host)
    salt: str = ""


@dataclass(frozen=True, slots=True)
class ClaimsPlacement:
    """The devices of every claim by its UID, all on one node."""

    node: str
    devices: dict[str, tuple[ClaimedDevice, ...]]
    score: float


@dataclass(slots=True)
class _Part:
    """Shares on different GPUs, each for one wish, or for several that want one GPU."""

    slots: list[tuple[Share, tuple[int, ...]]]
    admitted: frozenset[str] | None = field(default=None)


def choose_devices(
    planner: Planner,
    snapshot: Snapshot,
    wanted: ClaimsRequest,
    limit: Callable[[Request], QuotaLimits],
) -> ClaimsPlacement | None:
    """The best placement of all the claims, or None when no node can take them."""
    best: ClaimsPlacement | None = None
    for wishes in islice(_narrow(wanted), _MOST_WAYS):
        parts = _join(wishes, wanted.constraints)
        if parts is None:
            continue
        limits = limit(_ask(parts, wanted.host, None))
        search = _NodeSearch(planner, replace(wanted, wishes=wishes), limits)
        found = search.place(snapshot, parts)
        if found is not None and (best is None or found.score > best.score):
            best = found
    return best


def _narrow(wanted: ClaimsRequest) -> Iterator[tuple[DeviceWish, ...]]:
    """The wishes with each way to choose one group for every constraint that wants one."""
    grouped = [each for each in wanted.constraints if each.kind is ConstraintKind.ONE_GROUP]
    for chosen in product(*(each.groups for each in grouped)):
        wishes = list(wanted.wishes)
        for constraint, group in zip(grouped, chosen, strict=True):
            for at in constraint.members:
                known = wishes[at].admitted
                wishes[at] = replace(wishes[at], admitted=group if known is None else known & group)
        yield tuple(wishes)


def _join(
    wishes: Sequence[DeviceWish], constraints: Sequence[DeviceConstraint]
) -> list[_Part] | None:
    """The wishes as parts for the engine; None where no GPU could ever serve them."""
    parts: list[_Part] = []
    joined: set[int] = set()
    for constraint in constraints:
        if constraint.kind is ConstraintKind.ONE_GPU:
            part = _join_on_one(wishes, constraint.members)
            if part is None or joined.intersection(constraint.members):
                return None
            joined.update(constraint.members)
            parts.append(part)
    for at, wish in enumerate(wishes):
        if at not in joined:
            share = _read_share(wish.cores, wish.memory)
            if share is None or (wish.admitted is not None and not wish.admitted):
                return None
            parts.append(_Part([(share, (at,))] * wish.count, wish.admitted))
    for constraint in constraints:
        if constraint.kind is ConstraintKind.DIFFERENT_GPUS:
            members = set(constraint.members)
            chosen = [
                part for part in parts if any(members.intersection(of) for _, of in part.slots)
            ]
            if any(len(members.intersection(of)) > 1 for part in chosen for _, of in part.slots):
                return None
            parts = [part for part in parts if part not in chosen]
            slots = [slot for part in chosen for slot in part.slots]
            parts.append(_Part(slots, _intersect(part.admitted for part in chosen)))
    return parts


def _join_on_one(wishes: Sequence[DeviceWish], members: Sequence[int]) -> _Part | None:
    """One share for all of these; None where they cannot be on one GPU."""
    chosen = [wishes[at] for at in members]
    if any(each.count != 1 for each in chosen):
        return None
    if len(chosen) > 1 and any(each.memory is None or each.cores == FULL for each in chosen):
        return None
    memory = None if chosen[0].memory is None else sum(int(each.memory or 0) for each in chosen)
    share = _read_share(sum(each.cores for each in chosen), None if memory is None else MiB(memory))
    admitted = _intersect(each.admitted for each in chosen)
    return None if share is None else _Part([(share, tuple(members))], admitted)


def _intersect(sets: Iterator[frozenset[str] | None]) -> frozenset[str] | None:
    known: frozenset[str] | None = None
    for each in sets:
        if each is not None:
            known = each if known is None else known & each
    return known


def _read_share(cores: int, memory: MiB | None) -> Share | None:
    """The share as the engine knows it; None where no GPU has so much."""
    try:
        if memory is None:
            return Share(Percent(cores)) if cores == FULL else None
        return Share(Percent(cores), MiB(max(1, memory)))
    except SlicewiseError:
        return None


_Kind = tuple[frozenset[str] | None, list[_Part]]


class _NodeSearch:
    """Looks for a node on which all parts find room, those that few GPUs can serve first."""

    def __init__(self, planner: Planner, wanted: ClaimsRequest, limits: QuotaLimits) -> None:
        self._planner = planner
        self._wanted = wanted
        self._limits = limits

    def place(self, snapshot: Snapshot, parts: Sequence[_Part]) -> ClaimsPlacement | None:
        kinds: dict[frozenset[str] | None, list[_Part]] = {}
        for part in parts:
            kinds.setdefault(part.admitted, []).append(part)
        order = sorted(kinds.items(), key=lambda kind: (kind[0] is None, len(kind[0] or ())))
        left = set(self._wanted.nodes)
        for _ in range(_MOST_NODES):
            found = self._try(snapshot, order, left)
            if found is None or isinstance(found, ClaimsPlacement):
                return found
            left.discard(found)
        return None

    def _try(
        self, snapshot: Snapshot, order: Sequence[_Kind], nodes: Collection[str]
    ) -> ClaimsPlacement | str | None:
        """The placement; else the node on which not all found room, or None where none did."""
        wanted, planner = self._wanted, self._planner
        devices: dict[str, tuple[ClaimedDevice, ...]] = {}
        node, score = "", 0.0
        for at, (admitted, parts) in enumerate(order):
            request = _ask(parts, wanted.host if at == 0 else Host(), admitted)
            asked = PlacementRequest(request, self._limits, nodes, wanted.salt)
            if at == 0:
                placement = planner.place(snapshot, asked)
            else:
                placement = planner.place_on(snapshot, asked, node)
            if placement is None:
                return node or None
            node = placement.allocation.node
            score += placement.score
            _add_devices(devices, wanted.wishes, parts, snapshot, placement.allocation)
            if at + 1 < len(order):
                charges = charge(request, placement.allocation)
                snapshot = snapshot.hold(node, Holding(f"{_TRIED} {at}", "", _TRIED, charges))
        return ClaimsPlacement(node, devices, score)


def _ask(parts: Sequence[_Part], host: Host, admitted: frozenset[str] | None) -> Request:
    uuids = () if admitted is None else tuple(admitted)
    return Request(
        tuple(
            ContainerRequest(f"part-{at}", tuple(share for share, _ in part.slots))
            for at, part in enumerate(parts)
        ),
        Constraints(uuids=uuids),
        host,
    )


def _add_devices(
    devices: dict[str, tuple[ClaimedDevice, ...]],
    wishes: Sequence[DeviceWish],
    parts: Sequence[_Part],
    snapshot: Snapshot,
    allocation: Allocation,
) -> None:
    state = snapshot.get(allocation.node)
    assert state is not None
    for part, given in zip(parts, allocation.containers, strict=True):
        for (_, members), piece in zip(part.slots, given.slices, strict=True):
            for at in members:
                wish = wishes[at]
                device = _describe(wish, state.node.name, _find_gpu(state.node.gpus, piece))
                devices[wish.claim] = (*devices.get(wish.claim, ()), device)


def _find_gpu(gpus: Sequence[Gpu], piece: Slice) -> Gpu:
    return next(gpu for gpu in gpus if gpu.index == piece.gpu)


def _describe(wish: DeviceWish, node: str, gpu: Gpu) -> ClaimedDevice:
    """What the wish takes of a GPU: what it names and no more."""
    memory = gpu.memory if wish.memory is None else MiB(max(1, wish.memory))
    return ClaimedDevice(wish.request, node, gpu.device, Percent(wish.cores), memory)
