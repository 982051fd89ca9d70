"""Compares four views of one node: the ledger's, the kubelet's, the CDI folder's and the driver's.

Evidence in, findings out. A view that could not be read is a gap, and proves nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from slicewise.diagnose.audit_report import AuditKind, AuditReport, audit_finding, sort_findings
from slicewise.diagnose.evidence import (
    NO_RECORD,
    AuditedPod,
    AuditedProcess,
    ContainerUse,
    Evidence,
    SpecFile,
    StrayOrigin,
    UnitHolder,
    name_gpu,
    walk_holding,
)
from slicewise.diagnose.findings import Finding
from slicewise.model import FULL, Gpu, IsolationTier, MiB, Slice, Standing

_TOLERATED_PERCENT: Final = 5
_TOLERATED: Final = MiB(64)


def audit(evidence: Evidence) -> AuditReport:
    """All that is wrong, most severe first."""
    found = (finding for check in _CHECKS for finding in check(evidence))
    return AuditReport(evidence.node, sort_findings(found), evidence.gaps)


def _check_gpus(evidence: Evidence) -> Iterator[Finding]:
    """GPUs allocated beyond what they have, or though they are unhealthy."""
    for each in evidence.gpus:
        gpu = each.gpu
        parts = _find_parts(evidence, gpu)
        pods = ", ".join(sorted(pod.full_name for pod, _ in parts))
        whole = [pod for pod, piece in parts if piece.cores == FULL]
        if whole and len(parts) > 1:
            what = f"{whole[0].full_name} holds it whole, and yet it is held by {pods}"
            fix = "delete all of these pods but one"
            yield audit_finding(AuditKind.DOUBLE_GRANT, name_gpu(gpu), what, fix)
        elif each.cores > FULL or each.memory > gpu.memory:
            yield audit_finding(
                AuditKind.OVER_COMMIT,
                name_gpu(gpu),
                f"{each.cores} of {FULL} percent and {each.memory} of {gpu.memory} MiB "
                f"are allocated, to {pods}",
                "delete pods until the rest fits; the scheduler adds none meanwhile",
            )
        if parts and not gpu.usable:
            why = each.trouble or ("in MIG mode" if gpu.mig else "unhealthy")
            what = f"it is {why} and held by {pods}"
            fix = "delete the pods, so that they are placed on other GPUs"
            yield audit_finding(AuditKind.UNHEALTHY_IN_USE, name_gpu(gpu), what, fix)


def _check_records(evidence: Evidence) -> Iterator[Finding]:
    """Pods whose allocation is missing, unreadable or names GPUs that are not there."""
    gpus = {each.gpu.index for each in evidence.gpus}
    for pod in evidence.pods:
        if pod.trouble is not None:
            kind = _STANDINGS.get(pod.standing, AuditKind.MISSING_ALLOCATION)
            if pod.trouble == NO_RECORD:
                kind = AuditKind.MISSING_ALLOCATION
            fix = "delete the pod, and let the scheduler place it; its containers do not start"
            yield audit_finding(kind, pod.full_name, pod.trouble, fix)
        if pod.uid in evidence.conflicts:
            fix = "delete one of them; of two records the older is refused"
            why = evidence.conflicts[pod.uid]
            yield audit_finding(AuditKind.REFUSED_START, pod.full_name, why, fix)
        for index in pod.allocation.gpus:
            if index not in gpus:
                what = f"it was allocated a part of gpu {index}, which the node does not have"
                fix = "delete the pod, or bring the GPU back"
                yield audit_finding(AuditKind.UNKNOWN_GPU, pod.full_name, what, fix)


_STANDINGS: Final = {
    Standing.UNSIGNED: AuditKind.UNSIGNED_RECORD,
    Standing.FORGED: AuditKind.FORGED_RECORD,
}


def _check_processes(evidence: Evidence) -> Iterator[Finding]:
    """Processes where they do not belong, and containers that use more than they were allocated."""
    for each in evidence.processes:
        if each.owner is None:
            subject = f"pid {each.pid} on {name_gpu(each.gpu)}"
            what, fix = f"{_origin(each)}, {each.memory} MiB", _STRAY_REMEDIES[each.origin]
            yield audit_finding(AuditKind.STRAY, subject, what, fix)
        else:
            yield audit_finding(
                AuditKind.TRESPASS,
                f"{each.owner} on {name_gpu(each.gpu)}",
                f"process {each.pid} ({each.command}) uses {each.memory} MiB "
                "of a GPU that the container does not hold",
                "look for NVIDIA_VISIBLE_DEVICES or privileged in the pod, and delete it",
            )
    for use in evidence.uses:
        if use.allocated and use.used > use.allocated + _tolerated(use):
            subject = f"{use.container} on {name_gpu(use.gpu)}"
            what = f"it uses {use.used} MiB and was allocated {use.allocated} MiB"
            fix = "raise its request, or delete it before its neighbours run out of memory"
            yield audit_finding(AuditKind.OVERUSE, subject, what, fix)


def _tolerated(use: ContainerUse) -> int:
    """What a limited container may have beyond its share: contexts grow while they are counted."""
    return max(use.allocated * _TOLERATED_PERCENT // 100, _TOLERATED) if use.limited else 0


def _check_limits(evidence: Evidence) -> Iterator[Finding]:
    """Processes that nothing holds to their share, and compute above what is lent."""
    for each in evidence.unlimited:
        subject = f"{each.container} on {name_gpu(each.gpu)}"
        what = (
            f"process {each.pid} uses the GPU without the library that limits its container "
            f"(isolation {each.isolation})"
        )
        if each.isolation.memory is IsolationTier.DRIVER:
            what += "; the driver limits its memory, and nothing its compute"
        fix = "look for a static program or a loader of its own, and delete the pod if it is none"
        yield audit_finding(AuditKind.UNLIMITED, subject, what, fix)
    for over in evidence.overuses:
        subject = f"{over.container} on {name_gpu(over.gpu)}"
        what = f"it uses {over.used} percent of compute and may use {over.ceiling}"
        fix = "look for a kernel that never ends; delete the pod if its neighbours suffer"
        yield audit_finding(AuditKind.COMPUTE_OVERUSE, subject, what, fix)


_STRAY_REMEDIES: Final = {
    StrayOrigin.HOST: "end the process, or cordon the GPU for it",
    StrayOrigin.POD: "end the process if its pod is gone; the runtime should have done so",
    StrayOrigin.UNSEEN: "give the agent the host's processes (hostPID: true); if it has them, "
    "the driver holds memory of a process that ended, and the GPU needs a reset",
}


def _find_parts(evidence: Evidence, gpu: Gpu) -> list[tuple[AuditedPod, Slice]]:
    return [
        (pod, piece) for pod in evidence.pods for piece in pod.charges if piece.gpu == gpu.index
    ]


def _origin(stray: AuditedProcess) -> str:
    if stray.origin is StrayOrigin.UNSEEN:
        return "the driver lists a process that /proc does not show"
    if stray.origin is StrayOrigin.POD:
        return f"{stray.command} runs in a pod unknown here ({stray.pod or 'no UID'})"
    return f"{stray.command} runs outside every pod"


def _check_kubelet(evidence: Evidence) -> Iterator[Finding]:
    """Units that the kubelet gave to other containers than those with an allocation."""
    if evidence.holders is None:
        return
    pods = {(each.namespace, each.name): each for each in evidence.pods}
    ours = list(_keep_ours(evidence.holders, evidence.resources))
    for holder in ours:
        yield from _judge_holder(holder, pods.get((holder.namespace, holder.pod)))
    for resource in sorted(evidence.resources):
        yield from _find_shared_units(resource, ours)
    granted = {holder.full_name for holder in ours}
    for pod, container in walk_holding(evidence):
        name = f"{pod.full_name}/{container}"
        if name not in granted:
            what = "it runs and was allocated GPUs, but the kubelet gave it no units"
            fix = "delete the pod: the kubelet may give its units to another"
            yield audit_finding(AuditKind.MISSING_GRANT, name, what, fix)


def _keep_ours(holders: Iterable[UnitHolder], resources: frozenset[str]) -> Iterator[UnitHolder]:
    for holder in holders:
        units = {name: ids for name, ids in holder.units.items() if ids and name in resources}
        if units:
            yield replace(holder, units=units)


def _judge_holder(holder: UnitHolder, pod: AuditedPod | None) -> Iterator[Finding]:
    name = holder.full_name
    listed = ", ".join(f"{len(ids)} of {each}" for each, ids in sorted(holder.units.items()))
    if pod is None:
        what = f"the kubelet holds {listed} for it, but the API server knows no such pod here"
        fix = "restart the kubelet if this stays"
        yield audit_finding(AuditKind.KUBELET_LEAK, name, what, fix)
    elif not pod.held(holder.container) and pod.trouble is None:
        what = f"the kubelet gave it {listed}, but no GPU was allocated to it"
        fix = "delete the pod, so that it is placed by the extender"
        yield audit_finding(AuditKind.UNPROMISED_GRANT, name, what, fix)


def _find_shared_units(resource: str, holders: Iterable[UnitHolder]) -> Iterator[Finding]:
    given = [(each.full_name, each.units[resource]) for each in holders if resource in each.units]
    # Tens of thousands of units are common: only when the sums differ are pairs compared.
    if sum(len(ids) for _, ids in given) == len(frozenset().union(*(ids for _, ids in given))):
        return
    for (one, ids), (other, others) in combinations(given, 2):
        common = len(ids & others)
        if common:
            what = f"the kubelet gave {common} units of {resource} to both of them"
            fix = "delete one of the two pods"
            yield audit_finding(AuditKind.DOUBLE_GRANT, f"{one}, {other}", what, fix)


def _check_specs(evidence: Evidence) -> Iterator[Finding]:
    """CDI specs that are missing, left over, unreadable, or hand over other GPUs."""
    if evidence.specs is None:
        return
    pods = {pod.uid: pod for pod in evidence.pods}
    owned: dict[tuple[str, str], list[SpecFile]] = {}
    for spec in evidence.specs:
        if spec.trouble is not None:
            remedy = "delete the file; the agent writes it before its container starts again"
            yield audit_finding(AuditKind.BROKEN_SPEC, spec.name, spec.trouble, remedy)
        elif spec.pod in pods:
            owned.setdefault((spec.pod, spec.container), []).append(spec)
        elif spec.pod not in evidence.departed:
            what = f"it is for container {spec.container} of a pod that is gone ({spec.pod})"
            fix = "delete the file, or restart the agent"
            yield audit_finding(AuditKind.LEFTOVER_SPEC, spec.name, what, fix)
    uuids = {each.gpu.index: each.gpu.uuid for each in evidence.gpus}
    for (uid, container), specs in owned.items():
        yield from _compare_gpus(pods[uid], container, specs, uuids)
    yield from _find_missing_specs(evidence)


def _compare_gpus(
    pod: AuditedPod, container: str, specs: Iterable[SpecFile], uuids: Mapping[int, str]
) -> Iterator[Finding]:
    telling = [spec for spec in specs if spec.gpus is not None]
    given = {uuid for spec in telling for uuid in spec.gpus or ()}
    allocated = {uuids.get(piece.gpu, f"gpu {piece.gpu}") for piece in pod.held(container)}
    if allocated and telling and given != allocated:
        names = _join(spec.name for spec in telling)
        what = f"it is given {_join(given)} by {names}, but was allocated {_join(allocated)}"
        fix = "delete the pod: it may run on another's GPU"
        yield audit_finding(AuditKind.WRONG_SPEC, f"{pod.full_name}/{container}", what, fix)


def _find_missing_specs(evidence: Evidence) -> Iterator[Finding]:
    names = {spec.name for spec in evidence.specs or ()}
    running = {f"{pod.full_name}/{container}" for pod, container in walk_holding(evidence)}
    for holder in _keep_ours(evidence.holders or (), evidence.served):
        missing = [
            resource
            for resource, ids in sorted(holder.units.items())
            if evidence.name_spec(resource, ids) not in names
        ]
        if missing and holder.full_name in running:
            what = f"it runs, but the CDI spec for its {_join(missing)} is gone"
            fix = "find out who removes files there; the agent writes it before the next start"
            yield audit_finding(AuditKind.MISSING_SPEC, holder.full_name, what, fix)


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no GPU"


_CHECKS: Final[tuple[Callable[[Evidence], Iterator[Finding]], ...]] = (
    _check_gpus,
    _check_records,
    _check_kubelet,
    _check_specs,
    _check_processes,
    _check_limits,
)
