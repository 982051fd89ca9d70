"""The part of an audit that compares allocations with the kubelet's units and the CDI specs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from slicewise.diagnose.audit_report import AuditKind, audit_finding
from slicewise.diagnose.evidence import AuditedPod, Evidence, SpecFile, UnitHolder, walk_holding
from slicewise.diagnose.findings import Finding


def check_kubelet(evidence: Evidence) -> Iterator[Finding]:
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
            yield audit_finding(
                AuditKind.MISSING_GRANT,
                name,
                "it runs and was allocated GPUs, but the kubelet gave it no units",
                "delete the pod: the kubelet may give its units to another",
            )


def _keep_ours(holders: Iterable[UnitHolder], resources: frozenset[str]) -> Iterator[UnitHolder]:
    for holder in holders:
        units = {name: ids for name, ids in holder.units.items() if ids and name in resources}
        if units:
            yield replace(holder, units=units)


def _judge_holder(holder: UnitHolder, pod: AuditedPod | None) -> Iterator[Finding]:
    name = holder.full_name
    listed = ", ".join(f"{len(ids)} of {each}" for each, ids in sorted(holder.units.items()))
    if pod is None:
        yield audit_finding(
            AuditKind.KUBELET_LEAK,
            name,
            f"the kubelet holds {listed} for it, but the API server knows no such pod here",
            "restart the kubelet if this stays",
        )
    elif not pod.held(holder.container) and pod.trouble is None:
        yield audit_finding(
            AuditKind.UNPROMISED_GRANT,
            name,
            f"the kubelet gave it {listed}, but no GPU was allocated to it",
            "delete the pod, so that it is placed by the extender",
        )


def _find_shared_units(resource: str, holders: Iterable[UnitHolder]) -> Iterator[Finding]:
    given = [(each.full_name, each.units[resource]) for each in holders if resource in each.units]
    # Tens of thousands of units are common: only when the sums differ are pairs compared.
    if sum(len(ids) for _, ids in given) == len(frozenset().union(*(ids for _, ids in given))):
        return
    for (one, ids), (other, others) in combinations(given, 2):
        common = len(ids & others)
        if common:
            yield audit_finding(
                AuditKind.DOUBLE_GRANT,
                f"{one}, {other}",
                f"the kubelet gave {common} units of {resource} to both of them",
                "delete one of the two pods",
            )


def check_specs(evidence: Evidence) -> Iterator[Finding]:
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
            yield audit_finding(
                AuditKind.LEFTOVER_SPEC,
                spec.name,
                f"it is for container {spec.container} of a pod that is gone ({spec.pod})",
                "delete the file, or restart the agent",
            )
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
        yield audit_finding(
            AuditKind.WRONG_SPEC,
            f"{pod.full_name}/{container}",
            f"it is given {_join(given)} by {names}, but was allocated {_join(allocated)}",
            "delete the pod: it may run on another's GPU",
        )


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
            yield audit_finding(
                AuditKind.MISSING_SPEC,
                holder.full_name,
                f"it runs, but the CDI spec for its {_join(missing)} is gone",
                "find out who removes files there; the agent writes it before the next start",
            )


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no GPU"
