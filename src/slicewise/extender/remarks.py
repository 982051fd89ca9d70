"""What a pod's events say: which cards it got, and why these."""

from slicewise.extender.scene import Scene
from slicewise.kube.writer import Remark
from slicewise.model import Allocation, ContainerAllocation, Node, NodeState, Request, Slice
from slicewise.placement import admitted_cards


def remark_on(scene: Scene, allocation: Allocation) -> Remark:
    """The event for a pod that was given these cards."""
    state = scene.snapshot.get(allocation.node)
    assert state is not None
    cards = "; ".join(describe_container(each, state.node) for each in allocation.containers)
    note = f"{cards} on node {allocation.node}, {_why(scene, state)}"
    return Remark(reason="GpuAssigned", note=note[:1024])


def describe_container(given: ContainerAllocation, node: Node) -> str:
    """The cards of one container, for people."""
    return f"{given.name}: " + ", ".join(describe_slice(piece, node) for piece in given.slices)


def describe_slice(piece: Slice, node: Node) -> str:
    """A part of a card, for people."""
    at = node.position(piece.gpu)
    model = "" if at is None else f" ({node.gpus[at].model})"
    if piece.cores == 100:
        return f"all of gpu {piece.gpu}{model}"
    parts = [f"{piece.cores} percent"] if piece.cores else []
    if piece.memory:
        parts.append(f"{piece.memory} MiB")
    return f"{' and '.join(parts)} of gpu {piece.gpu}{model}"


def _why(scene: Scene, state: NodeState) -> str:
    request = scene.question.request
    room = count_room(state, request, admitted_cards(state, request, scene.question.grant))
    policy = scene.planner.policy.name
    if room <= 1:
        return f"the only GPU there with room (policy {policy})"
    return f"chosen by policy {policy} among {room} GPUs there with room"


def count_room(state: NodeState, request: Request, cards: list[int]) -> int:
    """How many of these cards could take the smallest share asked for."""
    least = min(share for each in request.containers for share in each.shares)
    return sum(
        state.node.gpus[at].usable
        and (
            state.untouched(at)
            if least.whole
            else state.free_cores(at) >= least.cores and state.free_memory(at) >= least.memory
        )
        for at in cards
    )
