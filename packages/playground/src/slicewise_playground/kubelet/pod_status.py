"""The statuses a kubelet writes, as strategic merge patches of a pod's status."""

from datetime import datetime
from typing import Final

from slicewise_playground.objects.resources import Object

_STARTED: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def stamp(moment: datetime) -> str:
    """A moment as objects spell it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def running_status(pod: Object, now: str, address: str) -> Object:
    """The status of a pod whose containers have all started."""
    status, spec = pod["status"], pod["spec"]
    known = {row["type"] for row in status.get("conditions") or ()}
    kinds = _STARTED if "PodScheduled" in known else (*_STARTED, "PodScheduled")
    patch: Object = {
        "phase": "Running",
        "startTime": status.get("startTime") or now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds
        ],
        "containerStatuses": [
            _container(each, {"running": {"startedAt": now}}) for each in spec["containers"]
        ],
    }
    if spec.get("initContainers"):
        ended = {"terminated": _terminated(0, now, now)}
        patch["initContainerStatuses"] = [
            _container(each, ended) for each in spec["initContainers"]
        ]
    return patch


def ended_status(pod: Object, now: str, code: int) -> Object:
    """The status of a pod whose containers all ended with one exit code."""
    row = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
    ended = {"terminated": _terminated(code, pod["status"].get("startTime") or now, now)}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [{"type": kind, **row} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [_container(each, ended) for each in pod["spec"]["containers"]],
    }


def refused_status(message: str) -> Object:
    """The status of a pod the kubelet would not admit."""
    return {"phase": "Failed", "reason": "BadAnnotation", "message": message}


def _terminated(code: int, started: str, ended: str) -> Object:
    return {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": started,
        "finishedAt": ended,
    }


def _container(container: Object, state: Object) -> Object:
    running = "running" in state
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"simulated://{image}",
        "containerID": f"simulated://{container['name']}",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
