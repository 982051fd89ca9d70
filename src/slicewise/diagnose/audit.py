"""Compares four views of one node: the ledger's, the kubelet's, the CDI folder's and the driver's.

Evidence in, findings out. A view that could not be read is a gap, and proves nothing.
"""

from collections.abc import Callable, Iterator
from typing import Final

from slicewise.diagnose.audit_holdings import check_kubelet, check_specs
from slicewise.diagnose.audit_report import AuditKind, AuditReport, audit_finding, sort_findings
from slicewise.diagnose.evidence import AuditedPod, AuditedProcess, Evidence, StrayOrigin, name_gpu
from slicewise.diagnose.findings import Finding
from slicewise.model import FULL, Gpu, Slice


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
            yield audit_finding(
                AuditKind.DOUBLE_GRANT,
                name_gpu(gpu),
                f"{whole[0].full_name} holds it whole, and yet it is held by {pods}",
                "delete all of these pods but one",
            )
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
            yield audit_finding(
                AuditKind.UNHEALTHY_IN_USE,
                name_gpu(gpu),
                f"it is {why} and held by {pods}",
                "delete the pods, so that they are placed on other GPUs",
            )


def _check_records(evidence: Evidence) -> Iterator[Finding]:
    """Pods whose allocation is missing, unreadable or names GPUs that are not there."""
    gpus = {each.gpu.index for each in evidence.gpus}
    for pod in evidence.pods:
        if pod.trouble is not None:
            yield audit_finding(
                AuditKind.MISSING_ALLOCATION,
                pod.full_name,
                pod.trouble,
                "delete the pod; until then every GPU of the node counts as taken",
            )
        for index in pod.allocation.gpus:
            if index not in gpus:
                yield audit_finding(
                    AuditKind.UNKNOWN_GPU,
                    pod.full_name,
                    f"it was allocated a part of gpu {index}, which the node does not have",
                    "delete the pod, or bring the GPU back",
                )


def _check_processes(evidence: Evidence) -> Iterator[Finding]:
    """Processes where they do not belong, and containers that use more than they were allocated."""
    for each in evidence.processes:
        if each.owner is None:
            yield audit_finding(
                AuditKind.STRAY,
                f"pid {each.pid} on {name_gpu(each.gpu)}",
                f"{_origin(each)}, {each.memory} MiB",
                _STRAY_REMEDIES[each.origin],
            )
        else:
            yield audit_finding(
                AuditKind.TRESPASS,
                f"{each.owner} on {name_gpu(each.gpu)}",
                f"process {each.pid} ({each.command}) uses {each.memory} MiB "
                "of a GPU that the container does not hold",
                "look for NVIDIA_VISIBLE_DEVICES or privileged in the pod, and delete it",
            )
    for use in evidence.uses:
        if use.allocated and use.used > use.allocated:
            yield audit_finding(
                AuditKind.OVERUSE,
                f"{use.container} on {name_gpu(use.gpu)}",
                f"it uses {use.used} MiB and was allocated {use.allocated} MiB",
                "raise its request, or delete it before its neighbours run out of memory",
            )


_STRAY_REMEDIES: Final = {
    StrayOrigin.HOST: "end the process, or cordon the GPU for it",
    StrayOrigin.POD: "end the process if its pod is gone; the runtime should have done so",
    StrayOrigin.UNSEEN: "give the agent the host's processes (hostPID: true); if it has them, "
    "the driver holds memory of a process that ended, and the GPU needs a reset",
}

_CHECKS: Final[tuple[Callable[[Evidence], Iterator[Finding]], ...]] = (
    _check_gpus,
    _check_records,
    check_kubelet,
    check_specs,
    _check_processes,
)


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
