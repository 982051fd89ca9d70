"""Why a claim has no GPU yet: per node and GPU what it lacks, and which word is misspelt.

Schedulers say no more than that they cannot allocate it. What is worked out here are its requests
one by one; constraints between them are named and not tried.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slicewise.explain.device_selectors import UnknownNameError, find_fault, matches
from slicewise.model import count
from slicewise.model.claim import (
    CAPACITIES,
    ENGINE_TAINT,
    Claim,
    ClaimRequest,
    OfferedDevice,
    WantedClaim,
)

Held = Mapping[tuple[str, str], tuple[int, int]]
"""Percent and MiB that claims were allocated of each device, by node and name."""


def sum_claims(claims: Sequence[Claim]) -> Held:
    """What claims were allocated of each device, as schedulers count it."""
    held: dict[tuple[str, str], tuple[int, int]] = {}
    for claim in claims:
        for each in claim.devices:
            if not each.admin:
                cores, memory = held.get((each.pool, each.device), (0, 0))
                held[each.pool, each.device] = cores + each.cores, memory + each.memory
    return held


def explain_claim(
    wanted: WantedClaim,
    devices: Sequence[OfferedDevice],
    held: Held,
    classes: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Everything there is to say of one claim, as JSON; `classes` have the selectors of each."""
    claim = wanted.claim
    told: dict[str, Any] = {"claim": claim.full_name, "state": _name_state(claim)}
    if claim.refused:
        told["reason"] = claim.refused
    if claim.devices:
        told["holds"] = [
            f"{each.cores} percent and {each.memory} MiB of {each.device} of node {each.pool}"
            for each in claim.devices
        ]
        told["node"] = claim.nodes[0]
        return told
    told["requests"] = [_explain(each, devices, held, classes) for each in wanted.requests]
    if wanted.constraints:
        told["constraints"] = list(wanted.constraints)
    left = _find_left_out(wanted, devices, told["requests"])
    return {**told, "leftOut": left} if left else told


def _find_left_out(
    wanted: WantedClaim, devices: Sequence[OfferedDevice], requests: Sequence[Mapping[str, Any]]
) -> str:
    """Why our engine does not allocate the claim where schedulers may not, and what to do."""
    if not any(ENGINE_TAINT in each.taints for each in devices) or _is_tolerant(wanted):
        return ""
    reason = wanted.spec.obstacle
    for request in requests:
        for each, why in request.get("notEvaluated", {}).items():
            reason = reason or f"selector {each}: {why}"
    return reason


def _is_tolerant(wanted: WantedClaim) -> bool:
    tolerations = [each for one in wanted.requests for each in one.tolerations]
    return any(each.covers(ENGINE_TAINT) for each in tolerations)


def _name_state(claim: Claim) -> str:
    if not claim.devices:
        return "not allocated"
    if claim.refused:
        return "refused, and about to be allocated again"
    return "waiting for a verdict" if claim.pending else "allocated"


def _explain(
    request: ClaimRequest,
    devices: Sequence[OfferedDevice],
    held: Held,
    classes: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    told: dict[str, Any] = {"request": request.name, "asks": describe_claim_request(request)}
    problem = find_problem(request, devices, classes)
    if problem is not None:
        return {**told, "fits": False, "problem": problem, "nodes": []}
    selectors = (*classes[request.device_class], *request.selectors)
    nodes: dict[str, list[dict[str, Any]]] = {}
    doubtful: dict[str, str] = {}
    for device in devices:
        missing = find_lacking(request, device, held.get((device.node, device.name), (0, 0)))
        for each in selectors:
            try:
                chosen = matches(each, device)
            except UnknownNameError as error:
                return {**told, "fits": False, "problem": f"selector: {error}", "nodes": []}
            if chosen is None:
                doubtful[each] = find_fault(each, device)
            elif not chosen:
                missing = ["not selected"]
                break
        entry = {"gpu": device.attributes.get("index", device.name), "missing": missing}
        nodes.setdefault(device.node, []).append(entry)
    listed = [_tell_node(name, gpus, request.count) for name, gpus in sorted(nodes.items())]
    told |= {"fits": any(each["fits"] for each in listed), "nodes": listed}
    return {**told, "notEvaluated": doubtful} if doubtful else told


def find_problem(
    request: ClaimRequest,
    devices: Sequence[OfferedDevice],
    classes: Mapping[str, tuple[str, ...]],
) -> str | None:
    """What no room could change: words that mean nothing here."""
    if request.device_class not in classes:
        known = ", ".join(sorted(classes)) or "none"
        return (
            f"deviceClassName {request.device_class!r}: there is no such class; there are {known}"
        )
    if request.strange:
        names = ", ".join(request.strange)
        return f"capacity {names}: expected {' or '.join(CAPACITIES)}, which is all GPUs have"
    if not devices:
        return (
            "no node asked offers GPUs to claims: label nodes with slicewise.io/dra=all, shared "
            "or engine"
        )
    return None


def _tell_node(name: str, gpus: list[dict[str, Any]], needed: int) -> dict[str, Any]:
    fitting = sum(not each["missing"] for each in gpus)
    return {"node": name, "fits": fitting >= needed, "fitting": fitting, "gpus": gpus}


def find_lacking(request: ClaimRequest, device: OfferedDevice, held: tuple[int, int]) -> list[str]:
    """What the device lacks; a share that names no amount is the whole GPU."""
    cores = device.whole_cores if request.cores is None else request.cores
    memory = device.whole_memory if request.memory is None else int(request.memory)
    missing = [f"tainted {each}" for each in device.taints if each != ENGINE_TAINT]
    if (lacking := cores - (device.cores - held[0])) > 0:
        missing.append(f"{lacking} percent")
    if (lacking := memory - (device.memory - held[1])) > 0:
        missing.append(f"{lacking} MiB")
    return missing


def describe_claim_request(request: ClaimRequest) -> str:
    if request.cores is None and request.memory is None:
        what = "a whole GPU"
    else:
        cores = "all compute" if request.cores is None else f"{request.cores} percent"
        memory = "all memory" if request.memory is None else f"{request.memory} MiB"
        what = f"{cores} and {memory} of a GPU"
    if request.every:
        return f"{what}, of every GPU with room"
    return what if request.count == 1 else f"{what}, on {count(request.count, 'different GPU')}"
