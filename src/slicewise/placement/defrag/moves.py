"""Moves of pods: one is evicted, its controller makes another, and the policy chooses its place.

Nobody tells a scheduler where the new pod goes, so a move goes where the policy puts it while the
room that is being made is held for the pod that it is for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.model import (
    Allocation,
    Holding,
    Host,
    MiB,
    NodeState,
    Percent,
    QuotaCount,
    Slice,
    Snapshot,
    charge,
    percent_of,
)
from slicewise.placement.decider import PlacementRequest
from slicewise.placement.planner import Planner

_ROOM: Final = "defrag/room"
_NO_HOST: Final = Host()


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that may be evicted: what its successor asks for and where that may go."""

    uid: str
    node: str
    wanted: PlacementRequest
    seconds: int = 0
    """How long it has run, all of which an eviction may lose."""
    planner: Planner | None = None
    """What decides for it where that is another than for the pod that waits."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is kept on one node: a part of each of these GPUs."""

    node: str
    pieces: tuple[Slice, ...]
    host: Host = _NO_HOST

    def free_part(self, state: NodeState) -> tuple[Slice, ...]:
        """What of the room is free now."""
        found = []
        for piece in self.pieces:
            at = state.node.position(piece.gpu)
            if at is None:
                continue
            cores = max(0, min(piece.cores, state.free_cores(at)))
            memory = max(0, min(piece.memory, state.free_memory(at)))
            if cores or memory:
                found.append(Slice(piece.gpu, Percent(cores), MiB(memory)))
        return tuple(found)

    def hold(self, snapshot: Snapshot, uid: str) -> Snapshot:
        """The cluster with what of the room is free now held for somebody."""
        state = snapshot.get(self.node)
        pieces = () if state is None else self.free_part(state)
        if not pieces:
            return snapshot
        return snapshot.hold(self.node, Holding(uid, "", uid, pieces, self.host, tentative=True))


@dataclass(frozen=True, slots=True)
class PodMove:
    """One pod from its node to another, or to other GPUs of the same."""

    uid: str
    pod: str
    left: Room
    target: Allocation
    percent_seconds: int
    """Percent of a GPU times the seconds that the pod has run."""

    @property
    def gpu_hours(self) -> float:
        return self.percent_seconds / 360_000


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """Moves in the order they are made, and where the pod is placed after the last."""

    moves: tuple[PodMove, ...]
    room: Room
    allocation: Allocation

    @property
    def gpu_hours(self) -> float:
        """What the moved pods have computed and may lose."""
        return sum(move.gpu_hours for move in self.moves)


class MoveSimulator:
    """Makes moves on a snapshot as a cluster would."""

    def __init__(
        self,
        planner: Planner,
        snapshot: Snapshot,
        wanted: PlacementRequest,
        movable: Mapping[str, MovablePod],
    ) -> None:
        self.planner = planner
        self.snapshot = snapshot
        self.wanted = wanted
        self.movable = movable
        self.trials = 0
        """How many placements were asked for."""

    def find_room(self, node: str, victims: Iterable[str]) -> Room | None:
        """What the pod would take of this node without these pods; None if it does not fit."""
        left = self.snapshot
        for uid in victims:
            left = left.release(self.movable[uid].node, uid)
        self.trials += 1
        placement = self.planner.place_on(left, self.wanted, node)
        state = left.get(node)
        if placement is None or state is None:
            return None
        request = self.wanted.on(state.node).request
        return Room(node, charge(request, placement.allocation), request.host)

    def run(self, order: Sequence[str], room: Room) -> DefragPlan | None:
        """The plan of moving these pods in this order; None where one of them finds no place."""
        snapshot = self.snapshot
        moves = []
        for uid in order:
            made = self.move(snapshot, uid, room)
            if made is None:
                return None
            move, snapshot = made
            moves.append(move)
        self.trials += 1
        placement = self.planner.place_on(snapshot, self.wanted, room.node)
        if placement is None:
            return None
        return DefragPlan(tuple(moves), room, placement.allocation)

    def move(self, snapshot: Snapshot, uid: str, room: Room) -> tuple[PodMove, Snapshot] | None:
        """One move and the cluster after it; None when the pod would find no place."""
        pod = self.movable[uid]
        state = snapshot.get(pod.node)
        held = None if state is None else state.find(uid)
        if state is None or held is None:
            return None
        left = Room(pod.node, held.charges)
        released = snapshot.release(pod.node, uid)
        self.trials += 1
        placement = (pod.planner or self.planner).place(room.hold(released, _ROOM), pod.wanted)
        if placement is None:
            return None
        allocation = placement.allocation
        target = released.get(allocation.node)
        assert target is not None
        request = pod.wanted.on(target.node).request
        moved = Holding(
            uid=uid,
            namespace=held.namespace,
            name=held.name,
            charges=charge(request, allocation),
            host=request.host,
            priority=held.priority,
        )
        cost = pod.seconds * count_percent(state, held)
        after = released.hold(allocation.node, moved)
        return PodMove(uid, held.pod, left, allocation, cost), after


def count_percent(state: NodeState, held: Holding) -> int:
    """Percent of GPUs that a pod holds, by the larger part of each."""
    total = 0
    for piece in held.charges:
        at = state.node.position(piece.gpu)
        if at is not None:
            total += percent_of(piece, state.node.gpus[at].memory, QuotaCount.LARGER)
    return total
