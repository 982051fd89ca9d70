"""What a scheduler checks of a node by itself: readiness, taints, selector and plain amounts.

Affinity, spreading, ports and volumes are left out; the playground's pods use none of them.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from slicewise_playground.api.deletion import ENDED
from slicewise_playground.objects.quantity import parse
from slicewise_playground.objects.resources import Object

Amounts = dict[str, Fraction]


def refuse_node(
    pod: Object, node: Object, held: Mapping[str, Fraction], ignored: Iterable[str]
) -> str | None:
    """Why a node cannot take the pod, in the scheduler's words; None when it can."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in spec.get("taints") or []:
        if taint.get("effect") != "PreferNoSchedule" and not _tolerates(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    offered = (node.get("status") or {}).get("allocatable") or {}
    for name, amount in sorted(measure_pod(pod).items()):
        if name in ignored or not amount:
            continue
        if held.get(name, Fraction(0)) + amount > parse(str(offered.get(name, "0"))):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return None


def measure_pod(pod: Object) -> Amounts:
    """What a pod takes of its node: the sum of its containers, or its largest init container."""
    total: Amounts = {"pods": Fraction(1)}
    for container in pod["spec"].get("containers") or []:
        for name, amount in _requests(container).items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in pod["spec"].get("initContainers") or []:
        for name, amount in _requests(container).items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def measure_nodes(pods: Iterable[tuple[str, Object]]) -> dict[str, Amounts]:
    """What is held of each node by pods that have not ended."""
    held: dict[str, Amounts] = {}
    for node, pod in pods:
        if (pod.get("status") or {}).get("phase") in ENDED:
            continue
        amounts = held.setdefault(node, {})
        for name, amount in measure_pod(pod).items():
            amounts[name] = amounts.get(name, Fraction(0)) + amount
    return held


def _requests(container: Object) -> Amounts:
    amounts = (container.get("resources") or {}).get("requests") or {}
    return {name: parse(str(value)) for name, value in amounts.items()}


def _tolerates(pod: Object, taint: Object) -> bool:
    return any(
        each.get("key") in {None, "", taint["key"]}
        and each.get("effect") in {None, "", taint.get("effect")}
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in pod["spec"].get("tolerations") or []
    )
