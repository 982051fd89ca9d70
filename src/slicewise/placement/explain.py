"""Why a node refuses a request: the first thing that is missing, with its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slicewise.model import (
    NodeState,
    Reason,
    Refusal,
    Request,
    count,
    fits_empty,
    how_many,
    model_admitted,
)
from slicewise.placement.groups import Group, split
from slicewise.placement.quota_limits import QuotaLimits


@dataclass(frozen=True, slots=True)
class _NodeQuery:
    state: NodeState
    request: Request
    limits: QuotaLimits
    groups: tuple[Group, ...]


def explain(state: NodeState, request: Request, limits: QuotaLimits) -> Refusal:
    """The reason this node cannot take the request; for a node already known to refuse it."""
    query = _NodeQuery(state, request, limits, split(request))
    return (
        _no_access(query)
        or _never(query)
        or _not_now(query)
        or _host(query)
        or Refusal(
            Reason.SCATTERED,
            f"needs {count(sum(group.count for group in query.groups), 'share')} side by side, "
            f"free are {_free(state, range(len(state.node.gpus)))}",
        )
    )


def never(state: NodeState, request: Request, limits: QuotaLimits) -> Refusal | None:
    """What refuses the request on this node even if it were empty; None if evictions can help.

    Topology constraints are not checked here.
    """
    query = _NodeQuery(state, request, limits, split(request))
    return _no_access(query) or _never(query)


def admitted_gpus(state: NodeState, request: Request, limits: QuotaLimits) -> list[int]:
    """Positions of the GPUs that constraints and quota leave to the request, healthy or not."""
    constraints = request.constraints
    return [
        at
        for at, gpu in enumerate(state.node.gpus)
        if model_admitted(gpu.model, constraints.models, constraints.models_refused)
        and (not constraints.uuids or gpu.uuid in constraints.uuids)
        and gpu.uuid not in constraints.uuids_refused
        and (limits.models is None or gpu.model in limits.models)
    ]


def _no_access(query: _NodeQuery) -> Refusal | None:
    state, constraints, limits = query.state, query.request.constraints, query.limits
    gpus = state.node.gpus
    if not query.groups:
        return None
    if not gpus:
        return Refusal(Reason.NO_GPU, f"node {state.node.name} lists no GPU")
    counted = query.request.lone & state.node.counted
    if counted:
        return Refusal(
            Reason.COUNTED,
            f"a container asks for {', '.join(sorted(counted))} alone, which this node only "
            "counts: ask for compute or GPUs beside it",
        )
    if limits.pools is not None and state.node.pool not in limits.pools:
        return Refusal(
            Reason.POOL,
            f"node is in pool {state.node.pool!r}, namespace may use {sorted(limits.pools)}",
        )
    needed = max(group.count for group in query.groups)
    of_model = [
        gpu
        for gpu in gpus
        if model_admitted(gpu.model, constraints.models, constraints.models_refused)
    ]
    if len(of_model) < needed and (constraints.models or constraints.models_refused):
        return Refusal(Reason.MODEL, f"{_models_wanted(query)}, node has {_models(state)}")
    if limits.models is not None:
        in_quota = [gpu for gpu in of_model if gpu.model in limits.models]
        if len(in_quota) < needed:
            return Refusal(Reason.QUOTA, limits.detail or "no quota left on this node's models")
    if len(admitted_gpus(state, query.request, limits)) < needed <= len(of_model):
        return Refusal(
            Reason.UUID,
            f"wants {', '.join(constraints.uuids) or 'any'} and not "
            f"{', '.join(constraints.uuids_refused) or 'none'}, node has "
            f"{', '.join(gpu.uuid for gpu in gpus)}",
        )
    return None


def _never(query: _NodeQuery) -> Refusal | None:
    """What no eviction can change: too few GPUs, too small, or unhealthy."""
    state = query.state
    gpus = admitted_gpus(state, query.request, query.limits)
    usable = [at for at in gpus if state.node.gpus[at].usable]
    for group in query.groups:
        if len(gpus) < group.count:
            return Refusal(
                Reason.TOO_FEW_GPUS,
                f"needs {count(group.count, 'GPU')}, {how_many(len(gpus), 'admitted')}",
            )
        if len(usable) < group.count:
            unusable = [state.node.gpus[at] for at in gpus if at not in usable]
            closed = [gpu.index for gpu in unusable if gpu.cordoned]
            cordoned = f" (cordoned: {_list(closed)})" if closed else ""
            return Refusal(
                Reason.UNHEALTHY,
                f"needs {count(group.count, 'GPU')}, {how_many(len(usable), 'usable')}; "
                f"gpu {_list(gpu.index for gpu in unusable)} "
                f"{'is' if len(unusable) == 1 else 'are'} not{cordoned}",
            )
        large = [at for at in usable if fits_empty(group, state.node.gpus[at])]
        if len(large) < group.count:
            largest = max(state.node.gpus[at].memory for at in usable)
            return Refusal(
                Reason.TOO_SMALL,
                f"needs {_amount(group)}, largest GPU has 100 percent and {largest} MiB",
            )
    return None


def _not_now(query: _NodeQuery) -> Refusal | None:
    """What others hold: compute, memory or whole GPUs."""
    state = query.state
    gpus = [
        at for at in admitted_gpus(state, query.request, query.limits) if state.node.gpus[at].usable
    ]
    for group in query.groups:
        refusal = _group_not_now(state, group, gpus)
        if refusal is None:
            continue
        unread = [each.pod for each in state.holdings if not each.certain]
        if unread:
            return Refusal(
                Reason.UNREADABLE,
                f"{refusal.detail}; {', '.join(unread[:3])} "
                f"{'is' if len(unread) == 1 else 'are'} charged to every GPU "
                f"until {'its allocation is' if len(unread) == 1 else 'their allocations are'} "
                "understood",
            )
        return refusal
    if query.request.constraints.topology is not None and query.request.constraints.topology.strict:
        topology = query.request.constraints.topology
        whole_node = len(gpus) == sum(state.untouched(at) for at in gpus)
        return Refusal(
            Reason.TOPOLOGY if whole_node else Reason.TOPOLOGY_BUSY,
            f"needs GPUs joined by {topology.nearness.name}, free are {_free(state, gpus)}",
        )
    return None


def _group_not_now(state: NodeState, group: Group, gpus: list[int]) -> Refusal | None:
    index = [gpu.index for gpu in state.node.gpus]
    fitting = [at for at in gpus if state.fits(at, group)]
    if len(fitting) >= group.count:
        return None
    if group.whole:
        return Refusal(
            Reason.WHOLE_GPUS,
            f"needs {count(group.count, 'whole GPU')}, {how_many(len(fitting), 'free')}",
        )
    if fitting:
        return Refusal(
            Reason.GPUS,
            f"needs {_amount(group)} on {count(group.count, 'GPU')}, "
            f"{len(fitting)} {'has' if len(fitting) == 1 else 'have'} that free: "
            f"gpu {_list(index[at] for at in fitting)}",
        )
    cores, most_cores = max((state.free_cores(at), -at) for at in gpus)
    memory, most_memory = max((state.free_memory(at), -at) for at in gpus)
    if memory < group.memory:
        return Refusal(
            Reason.MEMORY,
            f"needs {group.memory} MiB on one GPU, "
            f"most free is {max(memory, 0)} MiB on gpu {index[-most_memory]}",
        )
    if cores < group.cores:
        return Refusal(
            Reason.CORES,
            f"needs {group.cores} percent on one GPU, "
            f"most free is {max(cores, 0)} percent on gpu {index[-most_cores]}",
        )
    return Refusal(
        Reason.SCATTERED,
        f"needs {_amount(group)} on one GPU, free are {_free(state, gpus)}",
    )


def _host(query: _NodeQuery) -> Refusal | None:
    state, asked = query.state, query.request.host
    host = state.node.host
    if host is None:
        return None
    if host.cpu - state.cpu < asked.cpu:
        return Refusal(Reason.CPU, f"needs {asked.cpu} milli-CPU, {host.cpu - state.cpu} are free")
    if host.memory - state.host_memory < asked.memory:
        return Refusal(
            Reason.HOST_MEMORY,
            f"needs {asked.memory} MiB, {host.memory - state.host_memory} are free",
        )
    return None


def _amount(group: Group) -> str:
    parts = [f"{group.cores} percent"] if group.cores else []
    if group.memory:
        parts.append(f"{group.memory} MiB")
    return " and ".join(parts)


def _models_wanted(query: _NodeQuery) -> str:
    constraints = query.request.constraints
    parts = []
    if constraints.models:
        parts.append(f"wants {' or '.join(constraints.models)}")
    if constraints.models_refused:
        parts.append(f"refuses {', '.join(constraints.models_refused)}")
    return " and ".join(parts)


def _models(state: NodeState) -> str:
    return ", ".join(sorted({gpu.model for gpu in state.node.gpus}))


def _free(state: NodeState, gpus: Sequence[int]) -> str:
    return ", ".join(
        f"{state.free_cores(at)} percent and {state.free_memory(at)} MiB "
        f"on gpu {state.node.gpus[at].index}"
        for at in list(gpus)[:8]
    )


def _list(indexes: Iterable[int]) -> str:
    return ", ".join(str(index) for index in indexes)
