"""What the server does to each kind of object on its way in: fill in, check, protect.

One row per kind; a kind without a row is stored as it is.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from slicewise_playground.objects.amounts import spell_node
from slicewise_playground.objects.errors import FieldError, bad_value, required
from slicewise_playground.objects.pod_rules import (
    check_pod,
    check_pod_update,
    prepare_pod,
    settle_pod,
)
from slicewise_playground.objects.resources import Object
from slicewise_playground.objects.workload_rules import (
    check_workload,
    check_workload_update,
    prepare_workload,
    settle_workload,
)


def _nothing(_item: Object) -> list[FieldError]:
    """Find nothing wrong."""
    return []


def _no_change(_new: Object, _old: Object) -> list[FieldError]:
    """Find nothing wrong with a change."""
    return []


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind; each step returns what it found wrong."""

    prepare: Callable[[Object], list[FieldError]] = _nothing
    """Fills in a new object in place; problems here mean the body cannot be read."""
    settle: Callable[[Object], list[FieldError]] = _nothing
    """Puts a changed object into canonical form in place."""
    check: Callable[[Object], list[FieldError]] = _nothing
    """Looks at a complete object."""
    check_update: Callable[[Object, Object], list[FieldError]] = _no_change
    """Compares the new object with the old one."""


def _prepare_namespace(item: Object) -> list[FieldError]:
    """A namespace is active, labelled with its name and kept by its content."""
    item["spec"] = {"finalizers": ["kubernetes"]}
    item["status"] = {"phase": "Active"}
    labels = item["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    return []


def _prepare_node(item: Object) -> list[FieldError]:
    """A node has a spec, a status and canonical amounts."""
    item["spec"] = item.get("spec") or {}
    item["status"] = item.get("status") or {}
    return spell_node(item)


def _check_node(item: Object) -> list[FieldError]:
    """Taints need a key and a known effect."""
    problems: list[FieldError] = []
    for place, taint in enumerate((item.get("spec") or {}).get("taints") or []):
        if not taint.get("key"):
            problems.append(required(f"spec.taints[{place}].key"))
        if taint.get("effect") not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            field = f"spec.taints[{place}].effect"
            problems.append(bad_value(field, taint.get("effect"), "expected a taint effect"))
    return problems


def _settle_config_map(item: Object) -> list[FieldError]:
    """An empty map of data is left out."""
    if item.get("data") == {}:
        del item["data"]
    return []


def _prepare_secret(item: Object) -> list[FieldError]:
    """Texts are stored encoded, and data must be base64."""
    texts = item.pop("stringData", None) or {}
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        item["data"] = {**(item.get("data") or {}), **encoded}
    item.setdefault("type", "Opaque")
    problems = []
    for key, value in (item.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            problems.append(bad_value(f"data[{key}]", value, "expected base64"))
    return problems


def _prepare_service(item: Object) -> list[FieldError]:
    """A service has a type, and its ports a protocol and a target."""
    spec = item.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    item["status"] = {"loadBalancer": {}}
    return []


def _check_lease(item: Object) -> list[FieldError]:
    """A lease lasts longer than nothing."""
    seconds = (item.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        return [bad_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
    return []


def _check_event(item: Object) -> list[FieldError]:
    """An event lives where its object lives."""
    home = (item.get("involvedObject") or {}).get("namespace") or "default"
    if item["metadata"].get("namespace") != home:
        field = "involvedObject.namespace"
        return [bad_value(field, home, "does not match event.namespace")]
    return []


def _prepare_priority_class(item: Object) -> list[FieldError]:
    """A class has a value and may preempt."""
    item.setdefault("value", 0)
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return []


def _check_priority_class_update(new: Object, old: Object) -> list[FieldError]:
    """The value of a class is fixed."""
    if new.get("value") == old.get("value"):
        return []
    return [FieldError("value", "FieldValueForbidden", "may not be changed in an update.")]


def _prepare_budget(item: Object) -> list[FieldError]:
    """A new budget allows nothing until somebody counts."""
    item["status"] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
    return []


def _workload(kind: str) -> KindRules:
    """The rules of one kind of workload."""
    return KindRules(
        prepare=partial(prepare_workload, kind=kind),
        settle=partial(settle_workload, kind=kind),
        check=partial(check_workload, kind=kind),
        check_update=check_workload_update if kind != "ReplicaSet" else _no_change,
    )


_NONE = KindRules()
RULES: Mapping[str, KindRules] = {
    "Namespace": KindRules(prepare=_prepare_namespace),
    "Node": KindRules(prepare=_prepare_node, settle=spell_node, check=_check_node),
    "Pod": KindRules(
        prepare=prepare_pod, settle=settle_pod, check=check_pod, check_update=check_pod_update
    ),
    "Secret": KindRules(prepare=_prepare_secret, settle=_prepare_secret),
    "ConfigMap": KindRules(prepare=_settle_config_map, settle=_settle_config_map),
    "Service": KindRules(prepare=_prepare_service),
    "Lease": KindRules(check=_check_lease),
    "Event": KindRules(check=_check_event),
    "PriorityClass": KindRules(
        prepare=_prepare_priority_class, check_update=_check_priority_class_update
    ),
    "PodDisruptionBudget": KindRules(prepare=_prepare_budget),
    "Deployment": _workload("Deployment"),
    "ReplicaSet": _workload("ReplicaSet"),
    "StatefulSet": _workload("StatefulSet"),
    "DaemonSet": _workload("DaemonSet"),
    "Job": _workload("Job"),
}


def rules_for(kind: str) -> KindRules:
    """The rules of a kind."""
    return RULES.get(kind, _NONE)
