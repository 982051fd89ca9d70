"""The parts of Kubernetes objects the simulated kubelets read, and the statuses they write."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from slicewise_testbed.hollow.names import EXIT_CODE, KUBELET, RUN_SECONDS


class Metadata(msgspec.Struct, rename="camel"):
    """Who an object is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}


class Container(msgspec.Struct):
    """A container as its pod asks for it."""

    name: str
    image: str = ""


class PodSpec(msgspec.Struct, rename="camel"):
    """Where a pod runs and what it runs."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []


class PodStatus(msgspec.Struct):
    """How far a pod is."""

    phase: str = "Pending"


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def path(self) -> str:
        """Where the API serves it."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def run_seconds(self) -> float | None:
        """How long it wants to run."""
        text = self.metadata.annotations.get(RUN_SECONDS)
        return None if text is None else _number(RUN_SECONDS, text)

    @property
    def exit_code(self) -> int:
        """How it wants to end."""
        return int(_number(EXIT_CODE, self.metadata.annotations.get(EXIT_CODE, "0")))


class Condition(msgspec.Struct):
    """One condition of a Node."""

    type: str
    status: str


class NodeStatus(msgspec.Struct):
    """What a Node says about itself."""

    conditions: list[Condition] = []


class Node(msgspec.Struct):
    """A node."""

    metadata: Metadata
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def played(self) -> bool:
        """Whether its kubelet is alive."""
        return self.metadata.annotations.get(KUBELET) != "stopped"

    @property
    def ready(self) -> bool:
        """Whether it says so."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


def _number(annotation: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"annotation {annotation}={text!r}: expected a number") from None


def moment() -> str:
    """Now, as Lease objects write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second() -> str:
    """Now, as all other objects write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lease(node: Node) -> dict[str, Any]:
    """The heartbeat object of a node, removed together with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name}
    return {
        "metadata": {
            "name": node.metadata.name,
            "ownerReferences": [{**owner, "uid": node.metadata.uid}],
        },
        "spec": {
            "holderIdentity": node.metadata.name,
            "leaseDurationSeconds": 40,
            "renewTime": moment(),
        },
    }


def node_ready() -> dict[str, Any]:
    """The status a healthy kubelet writes."""
    now = second()
    healthy = {"status": "False", "lastHeartbeatTime": now, "lastTransitionTime": now}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    ready = {**healthy, "type": "Ready", "status": "True", "reason": "KubeletReady"}
    version = {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "simulated://1"}
    return {
        "status": {
            "conditions": [ready, *({**healthy, "type": kind} for kind in pressures)],
            "nodeInfo": {**version, "operatingSystem": "linux", "architecture": "amd64"},
        }
    }


def pod_running(pod: Pod, address: str) -> dict[str, Any]:
    """The status of a pod whose containers have all started."""
    now = second()
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": _conditions("True", now),
            "initContainerStatuses": [
                _status(c, {"terminated": _terminated(0, now)}) for c in pod.spec.init_containers
            ],
            "containerStatuses": [
                _status(c, {"running": {"startedAt": now}}) for c in pod.spec.containers
            ],
        }
    }


def pod_ended(pod: Pod) -> dict[str, Any]:
    """The status of a pod whose containers have all ended."""
    now = second()
    ended = {"terminated": _terminated(pod.exit_code, now)}
    return {
        "status": {
            "phase": "Failed" if pod.exit_code else "Succeeded",
            "conditions": _conditions("False", now),
            "containerStatuses": [_status(c, ended) for c in pod.spec.containers],
        }
    }


def pod_refused(message: str) -> dict[str, Any]:
    """The status of a pod the kubelet would not admit."""
    return {"status": {"phase": "Failed", "reason": "BadAnnotation", "message": message}}


def _conditions(ready: str, now: str) -> list[dict[str, str]]:
    states = {"Initialized": "True", "Ready": ready, "ContainersReady": ready}
    return [{"type": t, "status": s, "lastTransitionTime": now} for t, s in states.items()]


def _terminated(code: int, now: str) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}


def _status(container: Container, state: dict[str, Any]) -> dict[str, Any]:
    running = "running" in state
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"simulated://{container.name}",
        "restartCount": 0,
        "ready": running,
        "started": running,
        "state": state,
    }
