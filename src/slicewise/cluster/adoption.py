"""GPUs for pods that others bound and whose system names none.

What was given is kept while it fits, so that GPUs change hands only when they must; what is
being recorded on its pod is kept in any case.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.model import (
    Allocation,
    Holding,
    Host,
    Node,
    NodeState,
    Pod,
    Request,
    Slice,
    Snapshot,
    charge,
)
from slicewise.placement import UNLIMITED, PlacementRequest, Planner, admitted_gpus

_KNOWN: Final = 4096
ChooseGpus = Callable[[NodeState, "UnassignedPod"], Allocation | None]
"""Which GPUs of a node a claim gets of what is free there; None when too few are."""


@dataclass(frozen=True, slots=True)
class UnassignedPod:
    """A pod on a node that must have GPUs there, and those it was given so far."""

    uid: str
    request: Request
    given: Allocation | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class AdoptedPod:
    """A pod that names no GPUs, and the GPUs of its node it was given.

    None were given where too few are free; `detail` says so then.
    """

    pod: Pod
    request: Request
    node: Node
    allocation: Allocation | None
    pinned: bool
    detail: str = ""


class GpuChooser:
    """Gives what the engine would choose on the node, whatever else the pod asks of its host."""

    def __init__(self, planner: Planner | None = None) -> None:
        self.planner = Planner() if planner is None else planner
        self._workload = self.planner.workload
        self._known: dict[Hashable, Allocation | None] = {}

    def __call__(self, state: NodeState, claim: UnassignedPod) -> Allocation | None:
        """The GPUs for this claim."""
        if self._workload is not self.planner.workload or len(self._known) > _KNOWN:
            self._workload = self.planner.workload
            self._known.clear()
        # Clusters have few kinds of nodes, and a take-over asks for all of them at once.
        node, request = state.node, replace(claim.request, host=Host())
        like = (_kinds(node), node.links, state.used_cores, state.used_memory)
        key = (like, request, claim.uid if "random" in self.planner.policy.name else "")
        if key not in self._known:
            self._known[key] = self._place(state, PlacementRequest(request, salt=claim.uid))
        found = self._known[key]
        return None if found is None else replace(found, node=node.name)

    def _place(self, state: NodeState, question: PlacementRequest) -> Allocation | None:
        # The pod is there already: what CPU and memory are left decides nothing any more.
        state = replace(state, cpu=0, host_memory=0)
        alone = Snapshot(((state,),), {state.node.name: 0})
        placement = self.planner.place_on(alone, question, state.node.name)
        return None if placement is None else placement.allocation


def _kinds(node: Node) -> Hashable:
    """All of a node's GPUs that decides which are given; silent pods name no UUIDs."""
    return tuple((gpu.index, gpu.model, gpu.memory, gpu.usable, gpu.numa) for gpu in node.gpus)


def assign_all(
    state: NodeState, claims: Iterable[UnassignedPod], give: ChooseGpus
) -> dict[str, Allocation | None]:
    """The GPUs of every claim on a node that holds the other pods alone."""
    kept_first = sorted(claims, key=lambda each: (not each.pinned, each.given is None, each.uid))
    found = _serve(state, kept_first, give)
    if None not in found.values():
        return found
    # Whoever takes any GPU may have taken the one that another needs: the choosiest go first.
    again = [each if each.pinned else replace(each, given=None) for each in kept_first]
    again.sort(key=lambda each: (not each.pinned, _choice(state, each), each.uid))
    moved = _serve(state, again, give)
    return moved if _starving(moved) < _starving(found) else found


def _serve(
    state: NodeState, claims: Sequence[UnassignedPod], give: ChooseGpus
) -> dict[str, Allocation | None]:
    found: dict[str, Allocation | None] = {}
    for claim in claims:
        allocation = claim.given if _keeps(state, claim) else give(state, claim)
        found[claim.uid] = allocation
        if allocation is not None:
            charges = charge(claim.request, allocation)
            state = state.hold(Holding(claim.uid, "", "", charges))
    return found


def _keeps(state: NodeState, claim: UnassignedPod) -> bool:
    given = claim.given
    if given is None or given.node != state.node.name:
        return False
    return claim.pinned or has_room(state, charge(claim.request, given))


def has_room(state: NodeState, charges: Iterable[Slice]) -> bool:
    """Whether the node's GPUs, well or not, have this much free."""
    for piece in charges:
        at = state.node.position(piece.gpu)
        if at is None:
            return False
        if state.free_cores(at) < piece.cores or state.free_memory(at) < piece.memory:
            return False
    return True


def _choice(state: NodeState, claim: UnassignedPod) -> int:
    return len(admitted_gpus(state, claim.request, UNLIMITED))


def _starving(found: dict[str, Allocation | None]) -> int:
    return sum(allocation is None for allocation in found.values())
