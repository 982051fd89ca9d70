"""Explain: per node and GPU what a pod lacked, and the smallest change that would fit."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from slicewise.dialects.own.pods import KEPT
from slicewise.explain.format import describe_container, describe_slice
from slicewise.explain.pod_query import PodQuery
from slicewise.explain.suggestions import Suggestion, find_suggestions, write_smaller_limits
from slicewise.model import Allocation, Node, NodeState, Reason, Request, Slice, count
from slicewise.placement import (
    Placement,
    Screening,
    StepBudget,
    admitted_gpus,
    explain,
    feasible,
)
from slicewise.placement.budget import EXPLAIN_STEPS, NODE_STEPS

# Trying changes takes time; beyond so many nodes only their reasons are counted.
_DETAILED: Final = 32


@dataclass(frozen=True, slots=True)
class PodInquiry:
    """What is known at once of a pod and the nodes asked; the details take longer."""

    query: PodQuery
    names: list[str]
    screening: Screening
    placement: Placement | None
    held: tuple[Slice, ...] = ()
    """What the pod is counted for already, on the node it is on."""

    @classmethod
    def of(
        cls, query: PodQuery, names: list[str], screening: Screening, held: tuple[Slice, ...] = ()
    ) -> "PodInquiry":
        """The inquiry into these nodes, with the best place among them."""
        placement = query.planner.place(query.snapshot, query.ask(names))
        return cls(query, names, screening, placement, held)


def explain_pod(inquiry: PodInquiry) -> dict[str, Any]:
    """Everything there is to say about where the pod can and cannot go, as JSON.

    It reads nothing but the inquiry, so that it may take its time on another thread.
    """
    query, screening = inquiry.query, inquiry.screening
    pod = query.pod
    about: dict[str, Any] = {
        "pod": f"{pod.namespace}/{pod.name}",
        "node": pod.node,
        "asks": query.asks,
    }
    if not query.wants_gpu:
        return {**about, "summary": "asks for no GPU: Slicewise lets it pass", "nodes": []}
    state = None if pod.node is None else query.snapshot.get(pod.node)
    if state is not None:
        about["holds"] = [describe_slice(piece, state.node) for piece in inquiry.held]
    budget, refused = StepBudget(EXPLAIN_STEPS), dict[str, Reason]()
    listed = [
        _explain_node(query, name, budget, refused)
        if at < _DETAILED and budget.left
        else _tell_reason(screening, name)
        for at, name in enumerate(inquiry.names)
    ]
    # Only now, so that the changes of one node do not cost another its numbers.
    for each in listed:
        if each["node"] in refused:
            each["changes"] = _find_changes(query, each["node"], refused[each["node"]], budget)
    answer = {**about, "summary": _summarise(screening), "nodes": listed}
    if pod.node is None and KEPT in pod.annotations:
        answer["roomKept"] = pod.annotations[KEPT]
    nearest = _nearest(listed)
    if inquiry.placement is not None:
        answer["best"] = _describe_best(query, inquiry.placement.allocation)
    elif nearest is not None:
        node, change = nearest
        steps = {key: value for key, value in change.items() if key != "text"}
        answer["smallestChange"] = {"node": node, "change": change["text"], **steps}
    return answer


def _describe_best(query: PodQuery, allocation: Allocation) -> dict[str, Any]:
    state = query.snapshot.get(allocation.node)
    assert state is not None
    wanted = query.wanted
    allocation = query.dialects.add_terms(
        query.pod, wanted.request, allocation, state.node, wanted.limits.isolation
    )
    return {
        "node": allocation.node,
        "allocation": [describe_container(each, state.node) for each in allocation.containers],
        "policy": query.planner.policy.name,
    }


def _tell_reason(screening: Screening, name: str) -> dict[str, Any]:
    reason = screening.reasons.get(name)
    if reason is None:
        return {"node": name, "fits": name not in screening.unknown}
    return {"node": name, "fits": False, "reason": reason.code, "phrase": reason.phrase}


def _explain_node(
    query: PodQuery, name: str, budget: StepBudget, refused: dict[str, Reason]
) -> dict[str, Any]:
    """What the node says of the pod; a reason to refuse it is added to those of other nodes."""
    state = query.snapshot.get(name)
    if state is None:
        return {"node": name, "fits": False, "reason": "UnknownNode", "changes": []}
    wanted = query.wanted.on(state.node)
    budget.take(len(wanted.request.containers) * len(state.node.gpus) // 2)
    part = budget.split(NODE_STEPS)
    if feasible(state, wanted.request, wanted.limits, part):
        budget.settle(part)
        return {"node": name, "fits": True, "gpus": _gpus(query, state)}
    budget.settle(part)
    refusal = explain(state, wanted.request, wanted.limits, undecided=part.ended)
    refused[name] = refusal.reason
    return {
        "node": name,
        "fits": False,
        "reason": refusal.reason.code,
        "phrase": refusal.reason.phrase,
        "detail": refusal.detail,
        "gpus": _gpus(query, state),
        "changes": [],
    }


def _find_changes(
    query: PodQuery, name: str, reason: Reason, budget: StepBudget
) -> list[dict[str, Any]]:
    """What would make the pod fit on a node that refuses it, as far as steps are left."""
    state = query.snapshot.get(name)
    if state is None or not budget.left:
        return []
    part = budget.split(NODE_STEPS)
    changes = find_suggestions(state, query.wanted.on(state.node), reason, part)
    budget.settle(part)
    return [_describe_change(query, each, state.node) for each in changes]


def _describe_change(query: PodQuery, change: Suggestion, node: Node) -> dict[str, Any]:
    """The change, with the limits that make it in the words of the pod's own system."""
    told = change.describe()
    ask = change.steps.get("ask")
    limits = None if ask is None else write_smaller_limits(query.pod, ask, query.dialects.on(node))
    if limits is None:
        return told
    words = ", ".join(f"{key}: {value}" for key, value in limits.items())
    return {**told, "text": f"{change.text}, as {words}", "limits": limits}


def _gpus(query: PodQuery, state: NodeState) -> list[dict[str, Any]]:
    wanted = query.wanted.on(state.node)
    request = wanted.request
    admitted = set(admitted_gpus(state, request, wanted.limits))
    loads = query.planner.tables.measured.get(state.node.name, ())
    return [
        {
            "gpu": gpu.index,
            "model": gpu.model,
            "freePercent": max(0, state.free_cores(at)),
            "freeMiB": max(0, state.free_memory(at)),
            "missing": _missing(state, at, request, admitted=at in admitted),
            **({"loadPercent": loads[at]} if at < len(loads) else {}),
        }
        for at, gpu in enumerate(state.node.gpus)
    ]


def _missing(state: NodeState, at: int, request: Request, *, admitted: bool) -> list[str]:
    """What this GPU lacks for the smallest share asked for; empty when it could take it."""
    gpu = state.node.gpus[at]
    if not admitted:
        return ["not admitted by model, UUID, quota or isolation"]
    if not gpu.usable:
        return ["cordoned" if gpu.cordoned else "split by MIG" if gpu.mig else "unhealthy"]
    least = min(share for each in request.containers for share in each.shares)
    if state.fits(at, least):
        return []
    if least.whole and not state.untouched(at):
        return ["in use by others"]
    missing = []
    if (cores := least.cores - state.free_cores(at)) > 0:
        missing.append(f"{cores} percent")
    if (memory := least.memory - state.free_memory(at)) > 0:
        missing.append(f"{memory} MiB")
    return missing


def _summarise(screening: Screening) -> str:
    counts = Counter(reason.phrase for reason in screening.reasons.values())
    if screening.unknown:
        counts["Node is not known"] = len(screening.unknown)
    parts = [f"{sum(screening.fits)} of {count(len(screening.fits), 'node')} can take it"]
    parts += [f"{number}: {phrase}" for phrase, number in sorted(counts.items())]
    return "; ".join(parts)


def _nearest(listed: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """The node and change that are least far from what was asked."""
    found = [(each["node"], change) for each in listed for change in each.get("changes", ())[:1]]
    return min(found, key=lambda each: (each[1]["distance"], each[0]), default=None)
