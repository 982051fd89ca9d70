"""Compares four views of one node: the ledger's, the kubelet's, the CDI folder's and the driver's.

Evidence in, findings out. A view that could not be read is a gap, and proves nothing.
"""

from collections.abc import Callable, Iterator
from typing import Final

from slicewise.diagnose.audit_holdings import check_kubelet, check_specs
from slicewise.diagnose.audit_report import AuditKind, AuditReport, audit_finding, sort_findings
from slicewise.diagnose.evidence import AuditedPod, Evidence, StrayOrigin, StrayUse, name_gpu
from slicewise.diagnose.findings import Finding
from slicewise.model import FULL, Gpu, Slice


def audit(evidence: Evidence) -> AuditReport:
    """All that is wrong, most severe first."""
    found = (finding for check in _CHECKS for finding in check(evidence))
    return AuditReport(evidence.usage.node, sort_findings(found), evidence.gaps)


def _check_gpus(evidence: Evidence) -> Iterator[Finding]:
    """GPUs allocated beyond what they have, or though they are unhealthy."""
    for each in evidence.usage.gpus:
        gpu = each.device.gpu
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
            why = each.device.trouble or ("in MIG mode" if gpu.mig else "unhealthy")
            yield audit_finding(
                AuditKind.UNHEALTHY_IN_USE,
                name_gpu(gpu),
                f"it is {why} and held by {pods}",
                "delete the pods, so that they are placed on other GPUs",
            )


def _check_records(evidence: Evidence) -> Iterator[Finding]:
    """Pods whose allocation is missing, unreadable or names GPUs that are not there."""
    gpus = {each.device.gpu.index for each in evidence.usage.gpus}
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
    for stray in evidence.usage.strays:
        yield audit_finding(
            AuditKind.STRAY,
            f"pid {stray.process.pid} on {name_gpu(stray.gpu)}",
            f"{_origin(stray)}, {stray.process.memory} MiB",
            _STRAY_REMEDIES[stray.origin],
        )
    for each in evidence.usage.trespasses:
        owner = f"{each.pod.full_name}/{each.container}" if each.container else each.pod.full_name
        yield audit_finding(
            AuditKind.TRESPASS,
            f"{owner} on {name_gpu(each.gpu)}",
            f"process {each.process.pid} ({each.command}) uses {each.process.memory} MiB "
            "of a GPU that the container does not hold",
            "look for NVIDIA_VISIBLE_DEVICES or privileged in the pod, and delete it",
        )
    for use in evidence.usage.containers:
        for held in use.gpus:
            allocated = held.allocated.memory
            if allocated and held.memory > allocated:
                yield audit_finding(
                    AuditKind.OVERUSE,
                    f"{use.pod.full_name}/{use.container.name} on {name_gpu(held.device.gpu)}",
                    f"it uses {held.memory} MiB and was allocated {allocated} MiB",
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


def _origin(stray: StrayUse) -> str:
    if stray.origin is StrayOrigin.UNSEEN:
        return "the driver lists a process that /proc does not show"
    if stray.origin is StrayOrigin.POD:
        return f"{stray.command} runs in a pod unknown here ({stray.pod or 'no UID'})"
    return f"{stray.command} runs outside every pod"
