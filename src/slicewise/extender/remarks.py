"""What a pod's events say: which GPUs it got, and why these."""

from slicewise.kube.writer import Remark
from slicewise.model import Allocation, NodeState, Request
from slicewise.placement import admitted_gpus
from slicewise.state.scene import Scene
from slicewise.state.wording import describe_container


def remark_on(scene: Scene, allocation: Allocation) -> Remark:
    """The event for a pod that was given these GPUs."""
    state = scene.snapshot.get(allocation.node)
    assert state is not None
    gpus = "; ".join(describe_container(each, state.node) for each in allocation.containers)
    note = f"{gpus} on node {allocation.node}, {_why(scene, state)}"
    return Remark(reason="GpuAssigned", note=note[:1024])


def _why(scene: Scene, state: NodeState) -> str:
    request = scene.question.request
    room = count_room(state, request, admitted_gpus(state, request, scene.question.grant))
    policy = scene.planner.policy.name
    if room <= 1:
        return f"the only GPU there with room (policy {policy})"
    return f"chosen by policy {policy} among {room} GPUs there with room"


def count_room(state: NodeState, request: Request, gpus: list[int]) -> int:
    """How many of these GPUs could take the smallest share asked for."""
    least = min(share for each in request.containers for share in each.shares)
    return sum(
        state.node.gpus[at].usable
        and (
            state.untouched(at)
            if least.whole
            else state.free_cores(at) >= least.cores and state.free_memory(at) >= least.memory
        )
        for at in gpus
    )
