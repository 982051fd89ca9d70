"""The rules for pods: what the server fills in, refuses, and lets change later."""

import copy
from typing import Any

from slicewise_playground.objects.amounts import check_amounts, quality, spell_container
from slicewise_playground.objects.errors import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from slicewise_playground.objects.metadata_rules import (
    check_selector_labels,
    is_label,
    is_subdomain,
)
from slicewise_playground.objects.resources import Object

RESTART_POLICIES = ("Always", "OnFailure", "Never")
GRACE_SECONDS = 30
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def default_template(spec: Object, field: str) -> list[FieldError]:
    """Fill in a pod spec in place, as for a pod or a workload's template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("securityContext", {})
    problems: list[FieldError] = []
    for part in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(part) or []):
            problems += _default_container(container, f"{field}.{part}[{place}]")
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    return problems


def prepare_pod(pod: Object) -> list[FieldError]:
    """Fill in a new pod in place; amounts that cannot be read come back as problems."""
    spec = pod.setdefault("spec", {})
    problems = default_template(spec, "spec")
    spec.setdefault("enableServiceLinks", True)
    tolerations = list(spec.get("tolerations") or [])
    for key in (NOT_READY, UNREACHABLE):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    spec["tolerations"] = tolerations
    pod["status"] = {"phase": "Pending"}
    if not problems:
        pod["status"]["qosClass"] = quality(pod)
    return problems


def settle_pod(pod: Object) -> list[FieldError]:
    """Fill in what a changed pod leaves out, in place."""
    return default_template(pod["spec"], "spec")


def check_template(spec: Object, field: str) -> list[FieldError]:
    """What is wrong with a pod spec."""
    containers = spec.get("containers") or []
    problems = [] if containers else [required(f"{field}.containers")]
    seen: set[str] = set()
    for part in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(part) or []):
            where = f"{field}.{part}[{place}]"
            problems += _check_container(container, where, seen)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        policy = spec.get("restartPolicy")
        problems.append(unsupported(f"{field}.restartPolicy", policy, RESTART_POLICIES))
    if spec.get("nodeName") and not is_subdomain(spec["nodeName"]):
        words = "must be a lowercase RFC 1123 subdomain"
        problems.append(bad_value(f"{field}.nodeName", spec["nodeName"], words))
    problems += check_selector_labels(f"{field}.nodeSelector", spec.get("nodeSelector") or {})
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        where = f"{field}.terminationGracePeriodSeconds"
        value = spec["terminationGracePeriodSeconds"]
        problems.append(bad_value(where, value, "must be greater than or equal to 0"))
    return problems


def check_pod(pod: Object) -> list[FieldError]:
    """What is wrong with a pod."""
    return check_template(pod["spec"], "spec")


def check_pod_update(new: Object, old: Object) -> list[FieldError]:
    """Which fixed parts of a pod an update tries to change."""
    if _fixed(new["spec"], old["spec"]) == _fixed(old["spec"], old["spec"]):
        return []
    words = (
        "pod updates may not change fields other than images, activeDeadlineSeconds, "
        "tolerations (additions) and schedulingGates (removals)"
    )
    return [forbidden_field("spec", words)]


def _fixed(spec: Object, before: Object) -> Object:
    """The parts of a spec that may not change, given what it was before."""
    fixed = copy.deepcopy(spec)
    fixed.pop("activeDeadlineSeconds", None)
    for part in ("containers", "initContainers"):
        for container in fixed.get(part) or []:
            container.pop("image", None)
    kept = before.get("tolerations") or []
    if all(toleration in (spec.get("tolerations") or []) for toleration in kept):
        fixed.pop("tolerations", None)
    gates = before.get("schedulingGates") or []
    if all(gate in gates for gate in spec.get("schedulingGates") or []):
        fixed.pop("schedulingGates", None)
    return {key: value for key, value in fixed.items() if value not in (None, [], {})}


def _covers(toleration: Object, key: str) -> bool:
    """Whether a toleration already speaks for a taint key."""
    effect = toleration.get("effect")
    return toleration.get("key") in {key, None, ""} and effect in {"NoExecute", None, ""}


def _default_container(container: Object, field: str) -> list[FieldError]:
    """Fill in one container."""
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image") or ""
    container.setdefault("imagePullPolicy", "Always" if _is_latest(image) else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        source: Any = variable.get("valueFrom") or {}
        if source.get("fieldRef"):
            source["fieldRef"].setdefault("apiVersion", "v1")
    return spell_container(container, field)


def _is_latest(image: str) -> bool:
    """Whether an image name means the latest one."""
    if "@" in image:
        return False
    name = image.rpartition("/")[2]
    return ":" not in name or name.endswith(":latest")


def _default_volume(volume: Object) -> None:
    """Fill in one volume."""
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def _check_container(container: Object, field: str, seen: set[str]) -> list[FieldError]:
    """What is wrong with one container."""
    name = container.get("name") or ""
    problems: list[FieldError] = []
    if not name:
        problems.append(required(f"{field}.name"))
    elif not is_label(name):
        problems.append(bad_value(f"{field}.name", name, "must be a lowercase RFC 1123 label"))
    elif name in seen:
        problems.append(duplicate(f"{field}.name", name))
    seen.add(name)
    if not container.get("image"):
        problems.append(required(f"{field}.image"))
    for place, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            problems.append(required(f"{field}.env[{place}].name"))
    return problems + check_amounts(container, field)
