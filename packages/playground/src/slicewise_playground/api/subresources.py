"""The subresources of pods and workloads: binding, eviction and scale."""

from typing import Any

from slicewise_playground.api.deletion import DeleteOptions, delete
from slicewise_playground.api.writes import EmbeddedApi, ObjectRef
from slicewise_playground.objects.errors import (
    ApiError,
    bad_request,
    bad_value,
    conflict,
    invalid,
    required,
    unsupported,
)
from slicewise_playground.objects.resources import Object, find
from slicewise_playground.objects.selectors import label_test, selector_of
from slicewise_playground.objects.shapes import check_kind
from slicewise_playground.objects.store import StoredObject

PODS = find("pods")
SCALE = "autoscaling/v1"


def bind(
    api: EmbeddedApi, target: ObjectRef, binding: Object, *, dry_run: bool = False
) -> StoredObject:
    """Put a pod on a node, merging the binding's annotations, and labels, in the same write."""
    check_kind("Binding", "v1", binding)
    metadata = binding.get("metadata") or {}
    _check_binding(target, binding, metadata)
    with api.store.lock:
        entry = api.get(target)
        _check_bindable(target, entry.object, metadata)
        pod = {key: dict(part) for key, part in entry.object.items()}
        pod["spec"]["nodeName"] = binding["target"]["name"]
        for part in ("annotations", "labels") if api.binding_labels else ("annotations",):
            if metadata.get(part):
                pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **metadata[part]}
        pod["status"].pop("nominatedNodeName", None)
        set_condition(
            pod["status"],
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": api.stamp()},
        )
        return entry if dry_run else api.store.put(PODS.collection, pod)


def _check_binding(target: ObjectRef, binding: Object, metadata: Object) -> None:
    """Refuse a binding that does not say which node, or is for another pod."""
    name = metadata.get("name")
    if name and name != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = binding.get("target") or {}
    # The real server lets these two reach the client as internal errors.
    if node.get("kind") not in {None, "", "Node"}:
        problem = unsupported("target.kind", node["kind"], ("Node", "<empty>"))
        raise ApiError(500, "", f"{problem.field}: {problem.message}")
    if not node.get("name"):
        raise ApiError(500, "", f"target.name: {required('target.name').message}")


def _check_bindable(target: ObjectRef, pod: Object, metadata: Object) -> None:
    """Refuse to bind a pod that is bound, ending, gated or not the one meant."""
    have = pod["metadata"]
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if metadata.get(field) and metadata[field] != have[field]:
            why = (
                f"Precondition failed: {word} in precondition: {metadata[field]}, "
                f"{word} in object meta: {have[field]}"
            )
            raise conflict(PODS, target.name, why)
    if have.get("deletionTimestamp"):
        why = f"pod {target.name} is being deleted, cannot be assigned to a host"
        raise conflict(PODS, target.name, why)
    if pod["spec"].get("nodeName"):
        why = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict(PODS, target.name, why)
    if pod["spec"].get("schedulingGates"):
        why = f"pod {target.name} has non-empty .spec.schedulingGates"
        raise conflict(PODS, target.name, why)


def set_condition(status: Object, condition: Object) -> None:
    """Add the condition, or replace the one of its type, in place."""
    kept = [old for old in status.get("conditions") or [] if old.get("type") != condition["type"]]
    status["conditions"] = [*kept, condition]


def evict(api: EmbeddedApi, target: ObjectRef, eviction: Object) -> None:
    """Delete a pod unless a disruption budget forbids it."""
    check_kind("Eviction", "v1", eviction)
    with api.store.lock:
        pod = api.get(target).object
        if pod["status"].get("phase") == "Running":
            _check_budgets(api, target, pod)
        options = DeleteOptions.read(eviction.get("deleteOptions"))
        delete(api, target, options)


def _check_budgets(api: EmbeddedApi, target: ObjectRef, pod: Object) -> None:
    """Refuse when a matching budget allows no further disruption."""
    budgets = api.store.collections["poddisruptionbudgets.policy"].entries
    for (namespace, name), entry in budgets.items():
        selector = (entry.object.get("spec") or {}).get("selector")
        if namespace != target.namespace or not selector:
            continue
        if not label_test(selector_of(selector))(pod):
            continue
        if entry.object.get("status", {}).get("disruptionsAllowed", 0) <= 0:
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {name} does not allow evicting pods currently",
            }
            raise ApiError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [cause], "retryAfterSeconds": 10},
            )


def read_scale(entry: StoredObject) -> Object:
    """The Scale view of a workload."""
    item = entry.object
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": SCALE,
        "metadata": {field: item["metadata"][field] for field in fields},
        "spec": {"replicas": item["spec"].get("replicas", 0)},
        "status": {
            "replicas": (item.get("status") or {}).get("replicas", 0),
            "selector": selector_of(item["spec"].get("selector") or {}),
        },
    }


def write_scale(api: EmbeddedApi, target: ObjectRef, scale: Any) -> StoredObject:
    """Set the replicas of a workload."""
    check_kind("Scale", "v1", scale)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        problem = bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(target.resource, target.name, [problem])
    main = ObjectRef(target.resource, target.namespace, target.name)
    return api.patch(main, lambda item: {**item, "spec": {**item["spec"], "replicas": replicas}})
