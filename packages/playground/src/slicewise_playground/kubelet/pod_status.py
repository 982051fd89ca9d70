"""The status a kubelet writes for a pod that runs, and for one that has ended."""

from slicewise_playground.api.subresources import set_condition
from slicewise_playground.objects.resources import Object


def is_running(pod: Object) -> bool:
    """Whether the pod's kubelet has started it."""
    return str(pod["status"].get("phase")) == "Running"


def running_status(pod: Object, moment: str, address: str) -> Object:
    """The status of a pod whose containers all run."""
    status = dict(pod["status"])
    status.update(
        phase="Running",
        startTime=status.get("startTime") or moment,
        podIP=address,
        podIPs=[{"ip": address}],
        containerStatuses=[
            _container(container, ready=True, state={"running": {"startedAt": moment}})
            for container in pod["spec"]["containers"]
        ],
    )
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        set_condition(status, {"type": kind, "status": "True", "lastTransitionTime": moment})
    if not any(row["type"] == "PodScheduled" for row in status["conditions"]):
        row = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
        set_condition(status, row)
    return status


def ended_status(pod: Object, moment: str, code: int) -> Object:
    """The status of a pod whose containers all ended with one exit code."""
    status = dict(pod["status"])
    terminated = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": status.get("startTime") or moment,
        "finishedAt": moment,
    }
    status.update(
        phase="Succeeded" if code == 0 else "Failed",
        containerStatuses=[
            _container(container, ready=False, state={"terminated": terminated})
            for container in pod["spec"]["containers"]
        ],
    )
    for kind in ("Ready", "ContainersReady"):
        row = {"type": kind, "status": "False", "reason": "PodCompleted"}
        set_condition(status, {**row, "lastTransitionTime": moment})
    return status


def _container(container: Object, *, ready: bool, state: Object) -> Object:
    """The status of one container."""
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"simulated://{container['name']}",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
