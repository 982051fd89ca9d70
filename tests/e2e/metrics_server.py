"""`slicewise metrics-api` as a process behind a real APIService, and agents that report to it."""

import asyncio
import base64
import json
import signal
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from slicewise.reports import NodeReport, Reporter, trust
from slicewise_testbed.api import Api, ApiError
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.ports import free_port
from slicewise_testbed.testbed import wait_until

NAME = "metrics-api"
REPLICA = "metrics-api-replica"
SERVICE = "nvidia-gpu-scheduler"
ACCOUNT = "system:serviceaccount:kube-system:slicewise-metrics-api"
AGENT = "system:serviceaccount:kube-system:slicewise-agent"
MANIFESTS = Path(__file__).parents[2] / "deploy" / "metrics-api.yaml"
# The workloads are processes here, with the accounts and rights that are shipped.
WORKLOADS = ("Deployment", "DaemonSet", "ConfigMap")
PREFIX = "/apis/metrics.nvidia.com/v1alpha1"
SECOND = "/apis/nvidia-gpu-scheduler/v1"
GROUPS = ("v1alpha1.metrics.nvidia.com", "v1.nvidia-gpu-scheduler", "v1alpha1.metrics.slicewise.io")
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class MetricsServer:
    """One server of one cluster; its manifests are those that are shipped."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.port = free_port()
        self._user = plane.kubeconfig(ACCOUNT, ["system:serviceaccounts"])
        for document in self.manifests():
            plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))

    def manifests(self) -> Iterator[dict[str, Any]]:
        """The shipped documents, with a Service that leads to this machine."""
        for document in yaml.safe_load_all(MANIFESTS.read_text()):
            if document["kind"] in WORKLOADS:
                continue
            if document["kind"] == "Service":
                outside = {"type": "ExternalName", "externalName": "localhost"}
                document["spec"] = {**outside, "ports": [{"port": self.port}]}
            if document["kind"] == "APIService":
                document["spec"]["service"]["port"] = self.port
            yield document

    def start(self, *flags: str) -> None:
        """The server runs and the API server finds it available."""
        self._spawn(NAME, self.port, *flags)
        with self.plane.api() as api:
            for name in GROUPS:
                try:
                    api.wait_for(f"{APISERVICES}/{name}", is_available, 60)
                except TestbedError as error:
                    raise AssertionError(f"{error}: {self.plane.bed.tail(NAME, 30)}") from error
        wait_until(self._serves, 30, lambda: f"not served: {self.plane.bed.tail(NAME, 30)}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """The server is gone."""
        self.plane.bed.stop(NAME, number)

    def remove(self) -> None:
        """The server is gone, and the API server no longer looks for it."""
        self.stop()
        with self.plane.api() as api:
            for name in GROUPS:
                api.delete(f"{APISERVICES}/{name}")

    def start_replica(self, *flags: str) -> int:
        """The port of a second server, which no Service leads to yet."""
        port = free_port()
        self._spawn(REPLICA, port, *flags)
        return port

    def lead_to(self, port: int) -> None:
        """The API server asks at this port from now on."""
        here, self.port = self.port, port
        for document in self.manifests():
            if document["kind"] in ("APIService", "Service"):
                self.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
        self.port = here
        wait_until(self._serves, 60, lambda: f"not served: {self.plane.bed.tail(NAME, 30)}")

    def _spawn(self, name: str, port: int, *flags: str) -> None:
        command = [str(Path(sys.executable).with_name("slicewise")), "metrics-api"]
        wiring = [f"--kubeconfig={self._user.path}", f"--secure-port={port}"]
        where = ["--bind-address=127.0.0.1", "--overlap-seconds=3"]
        self.plane.bed.spawn(name, [*command, *wiring, *where, *flags])

    def get(self, path: str, config: Any = None) -> Any:
        """What the API server answers, decoded."""
        with self.plane.api(config) as api:
            return api.get(path)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Every podresource by its namespace and name."""
        items = self.get(f"{PREFIX}/podresources")["items"]
        return {f"{i['spec']['pod_namespace']}/{i['spec']['pod_name']}": i["spec"] for i in items}

    def health(self) -> dict[str, str]:
        """Whether each node is heard."""
        items = self.get(f"{PREFIX}/gpuinfos")["items"]
        return {i["spec"]["device_node"]: i["status"]["node_health"] for i in items}

    def authority(self) -> str:
        """The authority in the server's Secret."""
        data = self.secret()["data"]
        return base64.b64decode(data["ca-cert.pem"]).decode()

    def secret(self) -> dict[str, Any]:
        """The server's Secret."""
        found: dict[str, Any] = self.get(f"/api/v1/namespaces/kube-system/secrets/{SERVICE}")
        return found

    def shown_certificate(self) -> bytes:
        """The certificate that the listener shows right now."""
        return ssl.get_server_certificate(("127.0.0.1", self.port)).encode()

    def make_token(self, node: str) -> str:
        """A token of the agents' account that was handed to a pod of this node."""
        name = f"agent-{node}"
        with self.plane.api() as api:
            spec = {
                "serviceAccountName": "slicewise-agent",
                "nodeName": node,
                "containers": [{"name": "agent", "image": "busybox:local"}],
            }
            pods = "/api/v1/namespaces/kube-system/pods"
            try:
                api.create(pods, {"metadata": {"name": name}, "spec": spec})
            except ApiError as error:
                if error.code != 409:
                    raise
            uid = api.get(f"{pods}/{name}")["metadata"]["uid"]
            bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
            path = "/api/v1/namespaces/kube-system/serviceaccounts/slicewise-agent/token"
            answer = api.create(path, {"spec": {"boundObjectRef": bound}})
        token: str = answer["status"]["token"]
        return token

    def _serves(self) -> bool:
        with self.plane.api() as api:
            return api.raw("GET", f"{PREFIX}/podresources")[0] == 200


class Fleet:
    """Agents in a thread of the test, each with a token of its own."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reporters: dict[str, Reporter] = {}
        self._thread.start()

    def report(self, report: NodeReport, *, token: str | None = None) -> None:
        """The node's agent runs and says this."""
        if report.node not in self._reporters:
            shown = token or self._server.make_token(report.node)
            self._call(lambda: self._start(report, shown))
        else:
            self._call(lambda: self._reporters[report.node].update(report))

    def stop(self, node: str) -> None:
        """The node's agent is gone."""
        self._reporters.pop(node)
        task = self._tasks.pop(node)
        self._call(task.cancel)

    def connected(self, node: str) -> bool:
        """Whether the server has taken the agent in."""
        return self._reporters[node].connected.is_set()

    def close(self) -> None:
        """Every agent is gone."""
        for node in list(self._tasks):
            self.stop(node)
        self._call(lambda: self._loop.call_later(0.2, self._loop.stop))
        self._thread.join()
        self._loop.close()

    def _start(self, report: NodeReport, token: str) -> None:
        address = f"https://localhost:{self._server.port}"
        reporter = Reporter(address, Borrowed(self._server, token))
        reporter.update(report)
        self._reporters[report.node] = reporter
        self._tasks[report.node] = self._loop.create_task(reporter.run())

    def _call(self, action: Any) -> None:
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(20)


class Borrowed:
    """Credentials of an agent that looks the authority up in the Secret."""

    def __init__(self, server: MetricsServer, token: str) -> None:
        self._server = server
        self._token = token

    async def tls(self) -> ssl.SSLContext:
        return trust(await asyncio.to_thread(self._server.authority))

    async def token(self) -> str:
        return self._token


def is_available(service: Mapping[str, Any]) -> bool:
    """Whether the API server can reach what is registered."""
    conditions = service.get("status", {}).get("conditions", ())
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)


def read_lines(api: Api, path: str, seconds: float) -> Iterator[Any]:
    """The lines of a watch after the original's rules."""
    return api.watch(path, seconds)


def decode(text: str) -> Any:
    """What kubectl printed."""
    return json.loads(text)
