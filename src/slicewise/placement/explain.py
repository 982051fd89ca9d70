"""Why a node refuses a request: the first thing that is missing, with its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slicewise.model import (
    Gpu,
    Isolation,
    Node,
    NodeState,
    Reason,
    Refusal,
    Request,
    Role,
    code_meets,
    count,
    fits_empty,
    how_many,
    model_admitted,
)
from slicewise.placement.budget import STEPS
from slicewise.placement.groups import Group, split, whole_gpus
from slicewise.placement.quota_limits import (
    QuotaLimits,
    admitted_gpus,
    find_forbidden,
    needed_isolation,
)
from slicewise.placement.search import counted_out, free_table


@dataclass(frozen=True, slots=True)
class _NodeQuery:
    state: NodeState
    request: Request
    limits: QuotaLimits
    groups: tuple[Group, ...]


def explain(
    state: NodeState, request: Request, limits: QuotaLimits, *, undecided: bool = False
) -> Refusal:
    """The reason this node cannot take the request; for a node already known to refuse it.

    It may be `undecided` whether the request fits, because the steps of its decision had ended.
    """
    request = request.on(state.node)
    query = _NodeQuery(state, request, limits, split(request))
    return (
        _no_access(query)
        or _never(query)
        or _not_now(query)
        or _host(query)
        or _scattered(query, undecided=undecided)
    )


def _scattered(query: _NodeQuery, *, undecided: bool) -> Refusal:
    state = query.state
    needed = f"needs {count(sum(group.count for group in query.groups), 'share')} side by side"
    if undecided:
        return Refusal(
            Reason.UNDECIDED,
            f"{needed}, and no way was found within the {STEPS} steps of a decision",
        )
    return Refusal(
        Reason.SCATTERED, f"{needed}, free are {_free(state, range(len(state.node.gpus)))}"
    )


def never(state: NodeState, request: Request, limits: QuotaLimits) -> Refusal | None:
    """What refuses the request on this node even if it were empty; None if evictions can help.

    Topology constraints are not checked here.
    """
    request = request.on(state.node)
    query = _NodeQuery(state, request, limits, split(request))
    return _no_access(query) or _never(query)


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
            "counts: ask for slicewise.io/carrier: 1, compute or GPUs beside it",
        )
    if limits.pools is not None and state.node.pool not in limits.pools:
        where = f"pool {state.node.pool}" if state.node.pool else "no pool"
        allowed = ", ".join(sorted(limits.pools)) or "none"
        return Refusal(Reason.POOL, f"node is in {where}, namespace may use {allowed}")
    forbidden = find_forbidden(query.request, limits)
    if forbidden is not None:
        return Refusal(Reason.ISOLATION_NOT_ALLOWED, forbidden)
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
            reason = Reason.QUOTA_UNREADABLE if limits.unreadable else Reason.QUOTA
            return Refusal(reason, limits.detail or "no quota left on this node's models")
    least = needed_isolation(query.request, limits)
    isolated = [gpu for gpu in of_model if code_meets(gpu.isolation.code, least)]
    if len(isolated) < needed <= len(of_model):
        return Refusal(Reason.ISOLATION, _isolation_lacking(of_model, least))
    if len(admitted_gpus(state, query.request, limits)) < needed <= len(isolated):
        wanted = ", ".join(constraints.uuids) or "any"
        refused = ", ".join(constraints.uuids_refused)
        asks = f"wants {wanted}{f' but not {refused}' if refused else ''}"
        return Refusal(Reason.UUID, f"{asks}, node has {', '.join(gpu.uuid for gpu in gpus)}")
    return None


def _count_admitted(node: Node, admitted: Sequence[int]) -> str:
    """How many GPUs the node has, or how many of them the pod may use where that is fewer."""
    if len(admitted) == len(node.gpus):
        return f"the node has {len(admitted) or 'none'}"
    return f"{len(admitted) or 'none'} of the node's {len(node.gpus)} may be used"


def _never(query: _NodeQuery) -> Refusal | None:
    """What no eviction can change: too few GPUs, too small, or unhealthy."""
    state = query.state
    gpus = admitted_gpus(state, query.request, query.limits)
    usable = [at for at in gpus if state.node.gpus[at].usable]
    for group in query.groups:
        if len(gpus) < group.count:
            return Refusal(
                Reason.TOO_FEW_GPUS,
                f"needs {count(group.count, 'GPU')}, {_count_admitted(state.node, gpus)}",
            )
        if len(usable) < group.count:
            unusable = [state.node.gpus[at] for at in gpus if at not in usable]
            if any(gpu.claims for gpu in unusable):
                needs = count(group.count, "GPU")
                return Refusal(
                    Reason.CLAIMS, f"needs {needs} by resource name; ask by ResourceClaim instead"
                )
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
    if len(query.groups) > 1:
        empty, _ = free_table(NodeState.empty(state.node), usable)
        if counted_out(empty, query.groups):
            return Refusal(
                Reason.TOO_FEW_GPUS,
                f"needs {_sum(query.groups)}, more than {count(len(usable), 'GPU')} can hold",
            )
    return None


def _not_now(query: _NodeQuery) -> Refusal | None:
    """What others hold: compute, memory or whole GPUs."""
    state = query.state
    gpus = [
        at for at in admitted_gpus(state, query.request, query.limits) if state.node.gpus[at].usable
    ]
    lacking = [_group_not_now(state, group, gpus) for group in query.groups]
    for refusal in (*lacking, _wholes_not_now(query, gpus)):
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


def _wholes_not_now(query: _NodeQuery, gpus: list[int]) -> Refusal | None:
    """What all containers that run together lack of whole GPUs."""
    needed = whole_gpus(query.groups)
    free = sum(query.state.untouched(at) for at in gpus)
    if needed <= free:
        return None
    return Refusal(
        Reason.WHOLE_GPUS, f"needs {count(needed, 'whole GPU')}, {how_many(free, 'free')}"
    )


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


def _sum(groups: Iterable[Group]) -> str:
    """What the containers that run together ask for in all."""
    running = [group for group in groups if group.role is not Role.INIT]
    shares = count(sum(group.count for group in running), "share")
    cores, memory = (
        sum(each.demand for each in running),
        sum(each.count * each.memory for each in running),
    )
    return f"{shares} of {cores} percent and {memory} MiB in all"


def _models_wanted(query: _NodeQuery) -> str:
    constraints = query.request.constraints
    parts = []
    if constraints.models:
        parts.append(f"wants {' or '.join(constraints.models)}")
    if constraints.models_refused:
        parts.append(f"refuses {', '.join(constraints.models_refused)}")
    return " and ".join(parts)


def _isolation_lacking(gpus: Sequence[Gpu], least: Isolation) -> str:
    """What is demanded of memory or compute, and what these GPUs offer of it."""
    lacks_memory = any(gpu.isolation.best.memory < least.memory for gpu in gpus)
    what, tier = ("memory", least.memory) if lacks_memory else ("compute", least.compute)
    offers: dict[str, list[int]] = {}
    for gpu in gpus:
        best = gpu.isolation.best.memory if lacks_memory else gpu.isolation.best.compute
        offers.setdefault(best.word, []).append(gpu.index)
    told = (
        f"gpu {_list(indexes) if len(indexes) < 3 else f'{indexes[0]} to {indexes[-1]}'} "
        f"{'offers' if len(indexes) == 1 else 'offer'} {word}"
        for word, indexes in offers.items()
    )
    return f"needs {what} isolation {tier.word}, {', '.join(told)}"


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
