"""The rules for workloads: deployments, replica sets, stateful sets, daemon sets and jobs."""

from slicewise_playground.objects.errors import FieldError, bad_value, required, unsupported
from slicewise_playground.objects.pod_rules import check_template, default_template
from slicewise_playground.objects.resources import Object
from slicewise_playground.objects.selectors import label_test, selector_of

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}


def prepare_workload(item: Object, kind: str) -> list[FieldError]:
    """Fill in a new workload in place."""
    item["status"] = {}
    return settle_workload(item, kind)


def settle_workload(item: Object, kind: str) -> list[FieldError]:
    """Fill in what a workload leaves out, in place."""
    spec = item.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    problems = default_template(template.setdefault("spec", {}), "spec.template.spec")
    _DEFAULTS[kind](item, spec)
    return problems


def check_workload(item: Object, kind: str) -> list[FieldError]:
    """What is wrong with a workload."""
    spec = item["spec"]
    problems = check_template(spec["template"]["spec"], "spec.template.spec")
    allowed = ("OnFailure", "Never") if kind == "Job" else ("Always",)
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in allowed:
        problems.append(unsupported("spec.template.spec.restartPolicy", policy, allowed))
    if (spec.get("replicas") or 0) < 0:
        words = "must be greater than or equal to 0"
        problems.append(bad_value("spec.replicas", spec["replicas"], words))
    selector = spec.get("selector")
    if not selector:
        problems.append(required("spec.selector"))
    elif not label_test(selector_of(selector))({"metadata": spec["template"]["metadata"]}):
        labels = spec["template"]["metadata"].get("labels") or {}
        words = "`selector` does not match template `labels`"
        problems.append(bad_value("spec.template.metadata.labels", labels, words))
    return problems


def check_workload_update(new: Object, old: Object) -> list[FieldError]:
    """Which fixed parts of a workload an update tries to change."""
    if new["spec"].get("selector") == old["spec"].get("selector"):
        return []
    return [bad_value("spec.selector", new["spec"].get("selector"), "field is immutable")]


def _deployment(_item: Object, spec: Object) -> None:
    """What a deployment leaves out."""
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy["rollingUpdate"] = {**ROLLING, **(strategy.get("rollingUpdate") or {})}


def _replica_set(_item: Object, spec: Object) -> None:
    """What a replica set leaves out."""
    spec.setdefault("replicas", 1)


def _stateful_set(_item: Object, spec: Object) -> None:
    """What a stateful set leaves out."""
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)


def _daemon_set(_item: Object, spec: Object) -> None:
    """What a daemon set leaves out."""
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0, **rolling}


def _job(item: Object, spec: Object) -> None:
    """What a job leaves out, and the labels that tell its pods from others."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if not spec.get("manualSelector"):
        uid = item["metadata"]["uid"]
        spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}
        labels = spec["template"]["metadata"].setdefault("labels", {})
        labels.update({CONTROLLER_UID: uid, JOB_NAME: item["metadata"]["name"]})
        labels.update({"controller-uid": uid, "job-name": item["metadata"]["name"]})


_DEFAULTS = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
}
