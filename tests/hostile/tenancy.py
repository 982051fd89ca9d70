"""A real cluster that tenants share: a real node with our agent, our extender, simulated nodes.

A tenant is a user with the stock role `edit` in one namespace; whatever a tenant does in these
tests is asked of the API server with that user's own certificate.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from e2e import wirings
from e2e.agent_node import AGENT, AgentNode
from e2e.gpu_cluster import NAME as EXTENDER
from e2e.gpu_cluster import GpuCluster
from e2e.recorded_gpus import Gpu, make_gpus
from e2e.reports import SCRIPT, Report, gpu_devices
from slicewise_playground.kubelet.annotations import SIMULATED
from slicewise_testbed.api import ApiError
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.runtimes import WITH_CDI, Runtime
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import wait_until

Pod = dict[str, Any]
RECORD, SIGNATURE = "slicewise.io/allocation", "slicewise.io/signature"
GPU_MEMORY = 24576
GPUS = make_gpus((4, "NVIDIA A10", GPU_MEMORY))
# Says what it was given, then stays until its first process is told to end.
STAY = ["sh", "-c", f"{SCRIPT} trap 'exit 0' TERM; sleep 1000000 & wait"]
_RBAC = "rbac.authorization.k8s.io"


class Tenant:
    """A user who may do in its own namespace what the stock role `edit` allows, and no more."""

    def __init__(self, cluster: GpuCluster, name: str) -> None:
        self.name = name
        self._plane = cluster.plane
        self._config = cluster.plane.kubeconfig(name)
        self._path = f"/api/v1/namespaces/{name}/pods"
        cluster.make_namespace(name)
        _bind_edit(cluster.plane, name)

    def create(self, *pods: Pod) -> None:
        """The pods exist, as written."""
        with self._plane.api(self._config) as api:
            for pod in pods:
                api.create(self._path, pod)

    def annotate(self, name: str, marks: Mapping[str, str | None], **meta: Any) -> None:
        """The pod's annotations were edited; None removes one."""
        with self._plane.api(self._config) as api:
            body = {"metadata": {"annotations": dict(marks), **meta}}
            api.patch(f"{self._path}/{name}", body)

    def delete(self, name: str) -> None:
        """The pod is on its way out."""
        with self._plane.api(self._config) as api:
            api.delete(f"{self._path}/{name}")

    def delete_by_force(self, name: str) -> None:
        """The pod is gone from the API server, whatever its containers do."""
        where = ("--kubeconfig", str(self._config.path), "--namespace", self.name)
        self._plane.kubectl(*where, "delete", "pod", name, "--force", "--grace-period=0")

    def end(self, name: str) -> None:
        """The pod's container has been told to end, and will be started again."""
        where = ("--kubeconfig", str(self._config.path), "--namespace", self.name)
        # The container may be gone before it has answered.
        with contextlib.suppress(TestbedError):
            self._plane.kubectl(*where, "exec", name, "--", "kill", "1")

    def pod(self, name: str) -> Pod:
        """One pod as the API server has it."""
        with self._plane.api(self._config) as api:
            return api.get(f"{self._path}/{name}")

    def pods(self) -> list[Pod]:
        """All pods of the namespace."""
        with self._plane.api(self._config) as api:
            found: list[Pod] = api.get(self._path)["items"]
        return found

    def events(self, name: str) -> list[Pod]:
        """What was told about one pod."""
        with self._plane.api(self._config) as api:
            path = f"/api/v1/namespaces/{self.name}/events"
            selector = f"involvedObject.name={name}"
            found: list[Pod] = api.get(path, fieldSelector=selector)["items"]
        return found

    def wait(self, name: str, holds: Callable[[Pod], object], seconds: float = 60) -> Pod:
        """The pod as soon as something holds for it."""
        with self._plane.api(self._config) as api:
            return api.wait_for(f"{self._path}/{name}", holds, seconds)


class Tenancy:
    """The cluster, its services, and two tenants of whom one wants what the other has."""

    def __init__(self, plane: ControlPlane, runtime: Runtime = WITH_CDI) -> None:
        self.plane, self.bed = plane, plane.bed
        self.node = AgentNode(plane, runtime, GPUS)
        self.cluster = self.node.cluster
        SimulatedNodes(plane).start()
        self.tenant = Tenant(self.cluster, "mallory")
        self.victim = Tenant(self.cluster, "victim")

    def serve(self) -> None:
        """Agent, extender and scheduler run, each as a cluster has them by default."""
        if not self.bed.alive(f"{self.node.node.name}-{AGENT}"):
            self.node.start_agent()
            self.node.wait_allocatable("slicewise.io/cores", "nvidia.com/gpu")
        if not self.bed.alive(EXTENDER):
            self.node.start_extender()

    def schedule_with(self, wiring: wirings.Wiring) -> None:
        """The scheduler asks the extender by this wiring."""
        self.cluster.schedule_with(wiring(self.cluster.url()))

    def run(self, who: Tenant, *pods: Pod, seconds: float = 60) -> list[Pod]:
        """The pods of a tenant once they run and have said what they were given."""
        who.create(*pods)
        for pod in pods:
            name = pod["metadata"]["name"]
            wait_until(
                lambda name=name: self.starts(who, name), seconds, lambda: self._complain(who)
            )
        return [who.pod(pod["metadata"]["name"]) for pod in pods]

    def starts(self, who: Tenant, name: str) -> list[Report]:
        """What the container said at each of its starts, oldest first."""
        (reports,) = self.node.reports(who.pod(name)).values()
        return reports

    def devices(self, who: Tenant, name: str) -> list[set[str]]:
        """The GPU devices the container found at each of its starts, by name."""
        known = {gpu.device for gpu in GPUS}
        return [
            {path.rpartition("/")[2] for path in gpu_devices(report)} & known
            for report in self.starts(who, name)
        ]

    def wait_decided(self, who: Tenant, name: str, starts: int = 1, seconds: float = 60) -> None:
        """The container has started so many times, or its next start was refused."""
        wait_until(
            lambda: len(self.starts(who, name)) >= starts or self.refusals(who, name),
            seconds,
            lambda: f"{name} neither started nor was refused: {self._complain(who)}",
        )

    def refusals(self, who: Tenant, name: str) -> list[str]:
        """What the kubelet told of starts that the agent refused."""
        return [
            event["message"]
            for event in who.events(name)
            if event["type"] == "Warning"
            and ("PreStartContainer" in event["message"] or "Allocate failed" in event["message"])
        ]

    def held(self, node: str = "") -> list[tuple[int, int]]:
        """Percent and MiB in use of every GPU of the node, by the extender's ledger."""
        return self.cluster.gpus()[node or self.node.node.name]

    def catch_up(self) -> None:
        """The extender has seen every change of pods that was made before."""
        # Its watch tells changes in their order, so this one comes after them.
        name, who = "sentinel", self.victim
        who.create(share(name, 1, 1))
        who.wait(name, lambda found: found["spec"].get("nodeName"))
        who.delete(name)
        wait_until(lambda: not self._has(who, name), 30, lambda: f"{name} is left")

    def administer(self, program: str, *words: str) -> tuple[int, str]:
        """Exit code and output of a command of ours, as the administrator has them."""
        environment = self.plane.kubectl_environment()
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        command = [Path(sys.executable).with_name(program), *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=60, check=False
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    def clear(self) -> None:
        """No pods of tenants, no simulated nodes, and the services as they began."""
        with self.plane.api() as api:
            for who in (self.tenant, self.victim):
                path = f"/api/v1/namespaces/{who.name}"
                api.delete(f"{path}/pods")
            for node in api.get("/api/v1/nodes", labelSelector=SIMULATED)["items"]:
                api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        for name in self.bed.processes():
            if name.startswith(f"{EXTENDER}-"):
                self.cluster.stop_extender(name=name)
        wait_until(lambda: not self.cluster.pods(), 60, lambda: "pods are left")
        with self.plane.api() as api:
            for who in (self.tenant, self.victim):
                api.delete(f"/api/v1/namespaces/{who.name}/events")

    def _has(self, who: Tenant, name: str) -> bool:
        return any(pod["metadata"]["name"] == name for pod in who.pods())

    def _complain(self, who: Tenant) -> str:
        told = [f"{e['involvedObject']['name']}: {e['message']}" for e in self._events(who)]
        return f"{told[-6:]}\n{self.node.agent_tail()}\n{self.bed.tail(EXTENDER)}"

    def _events(self, who: Tenant) -> Iterable[Pod]:
        with self.plane.api() as api:
            found: list[Pod] = api.get(f"/api/v1/namespaces/{who.name}/events")["items"]
        return found


def make_pod(name: str, limits: Mapping[str, object], **fields: Any) -> Pod:
    """A pod of one container that says what it was given; metadata and spec may be added to."""
    container = {
        "name": "main",
        "image": "busybox:local",
        "imagePullPolicy": "Never",
        "command": STAY,
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
    return {
        "metadata": {"name": name, **fields.pop("metadata", {})},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": True,
            "containers": [container],
            **fields,
        },
    }


def share(name: str, cores: int, memory: int, **fields: Any) -> Pod:
    """A pod of ours that wants a part of one GPU."""
    limits = {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
    return make_pod(name, limits, **fields)


def whole(name: str, count: int = 1, **fields: Any) -> Pod:
    """A pod of ours that wants whole GPUs."""
    return make_pod(name, {"slicewise.io/gpu": count}, **fields)


def on(node: str) -> dict[str, Any]:
    """The fields of a pod that the scheduler may put on this node alone."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def marks_of(pod: Pod) -> dict[str, str]:
    """The annotations of a pod."""
    marks: dict[str, str] = pod["metadata"].get("annotations", {})
    return marks


def gpu_of(pod: Pod) -> Gpu:
    """The one GPU that the pod's record names for its container."""
    (piece,) = json.loads(marks_of(pod)[RECORD])["containers"]["main"]
    return GPUS[piece[0]]


def _bind_edit(plane: ControlPlane, name: str) -> None:
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "edit"}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": name}]
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    with plane.api() as api:
        try:
            api.create(f"/apis/{_RBAC}/v1/namespaces/{name}/rolebindings", body)
        except ApiError as error:
            if error.code != 409:
                raise
