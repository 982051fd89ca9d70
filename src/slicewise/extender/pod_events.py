"""The events of placed pods: which GPUs they got, and why these."""

from slicewise.explain.format import describe_container
from slicewise.explain.pod_query import PodQuery
from slicewise.kube.outcomes import PodEvent
from slicewise.model import Allocation, NodeState, Request
from slicewise.placement import admitted_gpus


def placement_event(query: PodQuery, allocation: Allocation) -> PodEvent:
    """The event for a pod that was given these GPUs."""
    state = query.snapshot.get(allocation.node)
    assert state is not None
    gpus = "; ".join(describe_container(each, state.node) for each in allocation.containers)
    note = f"{gpus} on node {allocation.node}, {_why(query, state)}"
    return PodEvent(reason="GpuAssigned", note=note[:1024])


def _why(query: PodQuery, state: NodeState) -> str:
    wanted = query.wanted.on(state.node)
    gpus = admitted_gpus(state, wanted.request, wanted.limits)
    room = count_room(state, wanted.request, gpus)
    policy = query.planner.policy.name
    if room <= 1:
        return f"the only GPU there with room (policy {policy})"
    return f"chosen by policy {policy} among {room} GPUs there with room"


def count_room(state: NodeState, request: Request, gpus: list[int]) -> int:
    """How many of these GPUs could take the smallest share asked for."""
    least = min(share for each in request.containers for share in each.shares)
    return sum(state.fits(at, least) for at in gpus)
