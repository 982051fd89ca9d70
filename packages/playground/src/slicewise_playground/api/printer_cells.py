"""What the less obvious cells of `kubectl get` say."""

from typing import Any

from slicewise_playground.objects.resources import Object
from slicewise_playground.objects.selectors import selector_of

ROLE_PREFIX = "node-role.kubernetes.io/"


def pod_ready(pod: Object) -> str:
    """How many containers of how many are ready."""
    statuses = pod["status"].get("containerStatuses") or []
    ready = sum(1 for status in statuses if status.get("ready"))
    return f"{ready}/{len(pod['spec'].get('containers') or [])}"


def pod_status(pod: Object) -> str:
    """The word that best says what a pod is doing."""
    status = pod["status"]
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        waiting = state.get("waiting") or {}
        terminated = state.get("terminated") or {}
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated.get("reason"):
            word = terminated["reason"]
        elif terminated:
            word = f"ExitCode:{terminated.get('exitCode', 0)}"
    if word == "Pending" and _gated(status):
        word = "SchedulingGated"
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in {
        "Succeeded",
        "Failed",
    }:
        return "Terminating"
    return word


def pod_restarts(pod: Object) -> str:
    """How often containers were restarted."""
    statuses = pod["status"].get("containerStatuses") or []
    return str(sum(status.get("restartCount", 0) for status in statuses))


def node_status(node: Object) -> str:
    """Whether a node is ready, and whether it takes pods."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((row for row in conditions if row.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    return word


def node_roles(node: Object) -> str:
    """The roles that a node's labels give it."""
    labels = node["metadata"].get("labels") or {}
    roles = [key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)]
    return ",".join(sorted(roles)) or "<none>"


def node_address(node: Object, kind: str) -> str:
    """A node's address of one type."""
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((row["address"] for row in addresses if row.get("type") == kind), "<none>")


def event_last_seen(event: Object, which: str = "last") -> str | None:
    """When an event was seen last, or first."""
    series = event.get("series") or {}
    if which == "last" and series.get("lastObservedTime"):
        return str(series["lastObservedTime"])
    stamp = event.get(f"{which}Timestamp") or event.get("eventTime")
    return str(stamp) if stamp else None


def event_source(event: Object) -> str:
    """Who told an event."""
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent"), source.get("host"))
    return ", ".join(part for part in parts if part)


def deployment_ready(item: Object) -> str:
    """How many replicas of how many are ready."""
    ready = (item.get("status") or {}).get("readyReplicas", 0)
    return f"{ready}/{item['spec'].get('replicas', 0)}"


def container_names(item: Object) -> str:
    """The containers of a workload's template."""
    return ",".join(str(container.get("name")) for container in _containers(item))


def container_images(item: Object) -> str:
    """The images of a workload's template."""
    return ",".join(str(container.get("image")) for container in _containers(item))


def render_selector(item: Object) -> str:
    """A workload's selector as text."""
    return selector_of((item.get("spec") or {}).get("selector") or {}) or "<none>"


def _containers(item: Object) -> list[Any]:
    """The containers of a workload's template."""
    template = (item.get("spec") or {}).get("template") or {}
    return (template.get("spec") or {}).get("containers") or []


def _gated(status: Object) -> bool:
    """Whether a pod waits for its scheduling gates."""
    conditions = status.get("conditions") or []
    return any(
        row.get("type") == "PodScheduled" and row.get("reason") == "SchedulingGated"
        for row in conditions
    )
