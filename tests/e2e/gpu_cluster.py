"""A real cluster of simulated GPU nodes, served by `slicewise extender` as a process of its own.

The extender knows the API server by a kubeconfig whose user may do what the product asks for and
nothing more, so a write that is not allowed to it fails the test that causes it.
"""

import json
import signal
import sys
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.api import ApiError
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.ports import free_port
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import wait_until

USER = "slicewise-extender"
NAME = "extender"
WRITES = ("create", "update", "patch", "delete", "deletecollection")
_RIGHTS = (
    ("", ("nodes", "pods", "namespaces", "configmaps"), ("get", "list", "watch")),
    ("", ("pods",), ("patch",)),
    ("", ("pods/binding", "pods/eviction"), ("create",)),
    ("policy", ("poddisruptionbudgets",), ("list",)),
    ("", ("events",), ("create", "patch")),
    ("metrics.slicewise.io", ("nodereports",), ("list",)),
    ("coordination.k8s.io", ("leases",), ("get", "create", "update")),
    ("resource.k8s.io", ("resourceclaims", "deviceclasses"), ("get", "list", "watch")),
    ("resource.k8s.io", ("resourceslices",), ("list", "watch")),
    ("resource.k8s.io", ("resourceclaims", "resourceclaims/status"), ("patch",)),
    ("resource.k8s.io", ("resourceclaims/binding",), ("patch",)),
    ("resource.k8s.io", ("resourceclaims/driver",), ("arbitrary-node:patch",)),
    # What is in these two is created without a name, and then read and changed by its name alone.
    ("", ("configmaps", "secrets"), ("create",)),
    ("", ("configmaps/slicewise-trust",), ("patch",)),
    ("", ("secrets/slicewise-signing",), ("get", "update")),
)


class GpuCluster:
    """One control plane, its simulated nodes, and one extender or several."""

    def __init__(self, plane: ControlPlane, nodes: SimulatedNodes) -> None:
        self.plane = plane
        self.bed = plane.bed
        self._nodes = nodes
        self._user = plane.kubeconfig(USER)
        self._ports: dict[str, int] = {}
        self._pids: dict[str, int] = {}
        _grant(plane)

    def start_extender(self, *flags: str, name: str = NAME, ready: bool = True) -> str:
        """The address of an extender that runs, on the port it had before if it was stopped."""
        port = self._ports.setdefault(name, free_port())
        command = [str(Path(sys.executable).with_name("slicewise")), "extender"]
        wiring = [f"--kubeconfig={self._user.path}", f"--address=127.0.0.1:{port}"]
        self._pids[name] = self.bed.spawn(name, [*command, *wiring, *flags])
        if ready:
            wait_until(lambda: self.ready(name), 30, lambda: f"not ready: {self.bed.tail(name)}")
        return self.url(name)

    def stop_extender(self, number: signal.Signals = signal.SIGTERM, name: str = NAME) -> None:
        """The extender is gone."""
        self.bed.stop(name, number)

    def signal_extender(self, word: str, name: str) -> None:
        """The extender has got a signal that it survives, such as STOP."""
        self.bed.run(f"signal-{word}", ["kill", f"-{word}", str(self._pids[name])])

    def url(self, name: str = NAME) -> str:
        """Where the extender listens."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def ready(self, name: str = NAME) -> bool:
        """Whether the extender says that it is ready to decide."""
        if not self.bed.alive(name):
            raise AssertionError(f"{name} ended: {self.bed.tail(name)}")
        try:
            with urllib.request.urlopen(f"{self.url(name)}/leadz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, name: str = NAME) -> Any:
        """What the extender answers to a GET, decoded."""
        with urllib.request.urlopen(self.url(name) + path, timeout=30) as answer:
            return json.load(answer)

    def filter(self, pod: Mapping[str, Any], node: str, name: str = NAME) -> bool:
        """Whether the extender lets the scheduler put the pod on the node."""
        body = json.dumps({"Pod": pod, "NodeNames": [node]}).encode()
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url(name)}/filter", body, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            reply = {key.lower(): value for key, value in json.load(answer).items()}
        return node in (reply.get("nodenames") or ())

    def gpus(self, name: str = NAME) -> dict[str, list[tuple[int, int]]]:
        """Percent and MiB in use on every GPU of every node, by the extender's own ledger."""
        status = json.loads(self.ask("/scheduler/status", name)["elasticgpu.io/gpu-core"])
        return {
            node: [
                (c["CoreTotal"] - c["CoreAvailable"], c["MemoryTotal"] - c["MemoryAvailable"])
                for c in gpus
            ]
            for node, gpus in status.items()
        }

    def schedule_with(self, *extenders: Mapping[str, Any], **fields: Any) -> None:
        """The scheduler runs with these extenders."""
        self.plane.start_scheduler({"extenders": list(extenders), **fields})

    def add_nodes(self, *nodes: SimulatedNode, known: bool = True) -> None:
        """The nodes are Ready and, if an extender runs that can be asked, known to it."""
        self._nodes.add(nodes)
        if known and NAME in self.bed.processes():
            names = {node.name for node in nodes if node.capacity}
            wait_until(lambda: names <= self.gpus().keys(), 20, lambda: f"no {names} in status")

    def make_namespace(self, name: str) -> None:
        """The namespace exists and takes pods."""
        with self.plane.api() as api:
            try:
                api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            except ApiError as error:
                if error.code != 409:
                    raise
            path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            api.wait_for(path, lambda _: True, 20)

    def apply(self, *documents: Mapping[str, Any], namespace: str = "default") -> None:
        """The documents are created as they are, in a namespace that is made for them."""
        self.make_namespace(namespace)
        text = yaml.safe_dump_all(documents)
        self.plane.kubectl("create", "--namespace", namespace, "-f", "-", stdin=text)

    def pods(self, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        """The pods of a namespace, or all there are."""
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        with self.plane.api() as api:
            found: list[dict[str, Any]] = api.get(path, **query)["items"]
        return found

    def wait_running(self, namespace: str, count: int, seconds: float = 40) -> list[dict[str, Any]]:
        """The pods of a namespace once so many of them run."""

        def complaint() -> str:
            events = self.plane.kubectl("get", "events", "-n", namespace)
            return f"not {count} pods run in {namespace}:\n{events}\n{self.bed.tail(NAME)}"

        running = "status.phase=Running"
        wait_until(
            lambda: len(self.pods(namespace, fieldSelector=running)) == count, seconds, complaint
        )
        return self.pods(namespace)

    def wait_bound(self, namespace: str, name: str, seconds: float = 40) -> dict[str, Any]:
        """The pod once it has a node."""
        with self.plane.api() as api:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            return api.wait_for(path, lambda found: found["spec"].get("nodeName"), seconds)

    def wait_settled(self, namespace: str, count: int, seconds: float = 60) -> list[dict[str, Any]]:
        """The pods that run, once each of the others was told why it cannot."""

        def settled() -> bool:
            found = self.pods(namespace)
            return len(found) == count and all(map(_settled, found))

        wait_until(settled, seconds, lambda: f"pods of {namespace} are neither placed nor refused")
        return [found for found in self.pods(namespace) if found["status"]["phase"] == "Running"]

    def wait_message(self, namespace: str, name: str, words: str, seconds: float = 30) -> str:
        """The event that says why the pod is not scheduled, once it has these words."""
        selector = f"involvedObject.name={name},reason=FailedScheduling"
        found: list[str] = []

        def said() -> bool:
            with self.plane.api() as api:
                path = f"/api/v1/namespaces/{namespace}/events"
                events = api.get(path, fieldSelector=selector)["items"]
            found[:] = [event["message"] for event in events]
            return any(words in message for message in found)

        wait_until(said, seconds, lambda: f"nothing says {words!r}: {found}")
        return next(message for message in found if words in message)

    def writes(self, since: int = 0) -> list[tuple[str, str]]:
        """What the extender wrote beside its Lease, as verb and resource, since a mark."""
        found = []
        for event in list(self.plane.audit_events())[since:]:
            if event["user"]["username"] != USER or event["verb"] not in WRITES:
                continue
            target = event["objectRef"]
            if target["resource"] == "leases":
                continue
            parts = filter(None, (target["resource"], target.get("subresource")))
            found.append((event["verb"], "/".join(parts)))
        return found

    def audit_mark(self) -> int:
        """The number of requests recorded so far."""
        return len(list(self.plane.audit_events()))

    def clear(self) -> None:
        """No pods, no workloads, no nodes, no extender; the scheduler is a plain one."""
        for name in self.bed.processes():
            if name.startswith(NAME):
                # It gives its lease up, so that the next one leads at once.
                self.stop_extender(name=name)
        with self.plane.api() as api:
            for node in api.get("/api/v1/nodes")["items"]:
                api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        self.clear_pods()

    def clear_pods(self) -> None:
        """No pods, and no workloads that would make others."""
        workloads = ("statefulsets.apps", "deployments.apps", "replicasets.apps")
        self.plane.kubectl("delete", ",".join(workloads), "--all", "--all-namespaces")
        with self.plane.api() as api:
            for space in api.get("/api/v1/namespaces")["items"]:
                path = f"/api/v1/namespaces/{space['metadata']['name']}/pods"
                api.delete(path, gracePeriodSeconds=0)
        wait_until(lambda: not self.pods(), 60, lambda: "pods are left")


def pod(name: str, limits: Mapping[str, object] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod of one container named main; metadata and spec fields may be added."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **fields.pop("metadata", {})},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:local",
                    "resources": {"limits": {k: str(v) for k, v in (limits or {}).items()}},
                }
            ],
            **fields,
        },
    }


def read_manifests(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Every document of these files, as they are."""
    return [each for name in names for each in yaml.safe_load_all((folder / name).read_text())]


def marks_of(found: Mapping[str, Any], *prefixes: str) -> dict[str, str]:
    """The annotations of a pod whose keys begin with one of these."""
    annotations = found["metadata"].get("annotations", {})
    return {key: text for key, text in annotations.items() if key.startswith(prefixes)}


def _settled(found: Mapping[str, Any]) -> bool:
    """Whether the pod runs, or waits for room and says so."""
    conditions = {c["type"]: c for c in found["status"].get("conditions", ())}
    refused = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
    return found["status"]["phase"] == "Running" or refused


def make_rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    """A rule of a role; `configmaps/some-name` stands for the one ConfigMap of that name."""
    named = [each.partition("/") for each in resources]
    names = [name for kind, _, name in named if name and kind in ("configmaps", "secrets")]
    kinds = [kind for kind, _, _ in named] if names else list(resources)
    rule = {"apiGroups": [group], "resources": kinds, "verbs": list(verbs)}
    return {**rule, **({"resourceNames": names} if names else {})}


def _grant(plane: ControlPlane) -> None:
    role = {"metadata": {"name": USER}, "rules": [make_rule(*right) for right in _RIGHTS]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
    subjects: Sequence[Mapping[str, str]] = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    ]
    binding = {"metadata": {"name": USER}, "roleRef": reference, "subjects": subjects}
    with plane.api() as api:
        api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
