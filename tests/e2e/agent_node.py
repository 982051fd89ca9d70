"""A real node with GPUs that do not exist, and `slicewise agent` on it as a process of its own.

The agent loads NVML through the C library of the tests, sees the node's own folders, and knows the
API server by a user who may do what the product asks for and nothing more.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e import wirings
from e2e.container_checks import check_container
from e2e.gpu_cluster import NAME as EXTENDER
from e2e.gpu_cluster import GpuCluster, make_rule
from e2e.recorded_gpus import Gpu, describe_gpus, make_devices, recorded_gpus
from e2e.reports import Report, read_reports
from fakes.nvml import build_library
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.nvml_file import FILE_VARIABLE, write_library_file
from slicewise_testbed.ports import free_port
from slicewise_testbed.real_nodes import RealNodes
from slicewise_testbed.runtimes import Runtime
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import wait_until

USER = "slicewise-agent"
AGENT = "agent"
_RIGHTS = (
    ("", ("pods", "nodes"), ("get", "list", "watch")),
    ("", ("pods", "nodes", "nodes/status"), ("patch",)),
    ("", ("pods",), ("delete",)),
    ("", ("events",), ("create", "patch")),
    ("", ("configmaps/slicewise-trust",), ("get", "list", "watch")),
    ("resource.k8s.io", ("resourceslices",), ("get", "list", "watch")),
    ("resource.k8s.io", ("resourceslices",), ("create", "update", "delete")),
    ("resource.k8s.io", ("resourceclaims",), ("get",)),
)
_RBAC = "rbac.authorization.k8s.io"
Pod = dict[str, Any]


class AgentNode:
    """One real node, its GPUs, its agent, and the extender that gives pods their GPUs."""

    def __init__(self, plane: ControlPlane, runtime: Runtime, gpus: Sequence[Gpu]) -> None:
        # Sixty pods at once are no load that the kubelet's cautious defaults were made for.
        many = {"maxPods": 250, "kubeAPIQPS": 500, "kubeAPIBurst": 1000}
        self.plane = plane
        self.bed = plane.bed
        (self.node,) = RealNodes(plane).add("gpu", settings=NodeSettings(runtime, kubelet=many))
        self.cluster = GpuCluster(plane, SimulatedNodes(plane))
        self._first = self.gpus = tuple(gpus)
        self.driver_facts: tuple[str, ...] = ()
        """What the driver can do beyond the description, as its library reads it."""
        self._description = self.node.folder / "gpus.yaml"
        self._machine = self.node.folder / "machine"
        self._dev = self.node.folder / "dev"
        self._port = free_port()
        self._user = plane.kubeconfig(USER)
        _grant(plane)
        self.use_gpus(gpus)

    def use_gpus(self, gpus: Sequence[Gpu]) -> None:
        """The node has these GPUs, all well; an agent that runs should be stopped before."""
        self.gpus = tuple(gpus)
        make_devices(self._dev, gpus)
        self.describe()

    def describe(self, **fields: Any) -> None:
        """The driver says this from now on: faults, or GPUs that differ from what they were."""
        self._description.write_text(yaml.safe_dump({**describe_gpus(self.gpus), **fields}))
        write_library_file(self._description, self._machine, more=self.driver_facts)

    def start_agent(self, *flags: str) -> int:
        """The process id of an agent that runs and is ready."""
        pid = self.launch_agent(*flags)
        wait_until(self.agent_ready, 60, lambda: f"not ready: {self.agent_tail()}")
        return pid

    def launch_agent(self, *flags: str, program: Sequence[str] = ("slicewise", "agent")) -> int:
        """The process id of an agent that was started, under this name of its program."""
        name, *words = program
        path = str(Path(sys.executable).with_name(name))
        command = [path, *words, *self._wiring(), *flags]
        return self.node.spawn_inside(AGENT, *command, env=self._environment())

    def withdraw(self) -> str:
        """What the command says that takes what agents wrote off every Node."""
        command = [Path(sys.executable).with_name("slicewise"), "withdraw"]
        environment = self.plane.kubectl_environment()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop_agent(self, number: signal.Signals = signal.SIGTERM) -> None:
        """The agent is gone."""
        self.node.stop_inside(AGENT, number)

    def agent_ready(self) -> bool:
        """Whether the agent says that it is ready."""
        if not self.bed.alive(f"{self.node.name}-{AGENT}"):
            raise AssertionError(f"the agent ended: {self.agent_tail()}")
        try:
            self.ask("/readyz")
        except OSError:
            return False
        return True

    def ask(self, path: str) -> str:
        """What the agent answers to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def agent_log(self) -> str:
        """Everything the agent has logged."""
        return self.bed.log(f"{self.node.name}-{AGENT}").read_text(errors="replace")

    def agent_tail(self) -> str:
        """The last lines of its log."""
        return self.bed.tail(f"{self.node.name}-{AGENT}", 12)

    def start_extender(self, *flags: str, **scheduling: Any) -> None:
        """The scheduler asks an extender that knows the node's GPUs."""
        url = self.cluster.start_extender(*flags)
        count = len(self.gpus)
        wait_until(
            lambda: len(self.cluster.gpus().get(self.node.name, ())) == count,
            30,
            lambda: f"the extender knows {self.cluster.gpus()}: {self.agent_tail()}",
        )
        self.cluster.schedule_with(wirings.everything(url), **scheduling)

    def restart_kubelet(self) -> None:
        """The kubelet was killed, runs again, and knows every plugin of the agent."""
        socket = self.node.device_plugins / "kubelet.sock"
        before = socket.stat().st_ctime_ns
        self.node.stop_kubelet(signal.SIGKILL)
        self.node.start_kubelet()

        def back() -> bool:
            again = socket.exists() and socket.stat().st_ctime_ns != before
            return again and self.agent_ready()

        wait_until(back, 60, self.agent_tail)

    def node_object(self) -> Pod:
        """The Node as the API server has it."""
        with self.plane.api() as api:
            return api.get(f"/api/v1/nodes/{self.node.name}")

    def identity(self) -> str:
        """How the agent knows owners, as the Node tells."""
        told = self.node_object()["metadata"]["annotations"]["slicewise.io/agent"]
        return str(json.loads(told)["identity"])

    def wait_allocatable(self, *resources: str, seconds: float = 60) -> None:
        """The node offers some of each of these resources."""

        def lacking() -> list[str]:
            amounts = self.node_object()["status"].get("allocatable", {})
            return [each for each in resources if amounts.get(each, "0") == "0"]

        wait_until(lambda: not lacking(), seconds, lambda: f"no {lacking()}: {self.agent_tail()}")

    def bound_marks(self) -> dict[str, dict[str, str]]:
        """The annotations every pod was bound with, by UID, from the API server's own log."""
        found = {}
        for event in self.plane.audit_events():
            if event.get("objectRef", {}).get("subresource") != "binding":
                continue
            if event["responseStatus"]["code"] == 201:
                meta = event["requestObject"]["metadata"]
                found[meta["uid"]] = meta.get("annotations", {})
        return found

    def allocations(self, pods: Sequence[Pod]) -> dict[str, dict[str, tuple[Gpu, ...]]]:
        """What each pod was allocated when it was bound: pod, container and its GPUs."""
        marks = self.bound_marks()
        return {
            pod["metadata"]["name"]: recorded_gpus(
                {**pod, "metadata": {**pod["metadata"], "annotations": marks[_uid(pod)]}},
                self.gpus,
            )
            for pod in pods
        }

    def reports(self, pod: Pod) -> dict[str, list[Report]]:
        """What the containers of a pod said at each of their starts."""
        return read_reports(self.node.folder / "log", pod)

    def count_started(self, namespace: str) -> int:
        """How many containers of the namespace have said what they were given."""
        return sum(map(self._count_reports, self.cluster.pods(namespace)))

    def wait_started(self, namespace: str, count: int, seconds: float = 120) -> None:
        """So many containers of the namespace have said what they were given."""

        wait_until(
            lambda: self.count_started(namespace) >= count,
            seconds,
            lambda: f"not {count} containers: {self.agent_tail()}",
        )

    def wait_admitted(self, namespace: str, count: int, seconds: float = 120) -> None:
        """The kubelet has taken in so many pods of the namespace, whether or not they run."""

        def admitted() -> bool:
            notes = self.node.device_plugins / "kubelet_internal_checkpoint"
            held = notes.read_text()
            pods = self.cluster.pods(namespace)
            # There is a note for every container.
            return sum(held.count(_uid(p)) >= len(p["spec"]["containers"]) for p in pods) == count

        wait_until(admitted, seconds, lambda: self._complain(namespace))

    def wait_spoken(self, namespace: str, count: int, seconds: float) -> list[Pod]:
        """The pods of a namespace, once so many run and all their containers have spoken."""
        self.wait_running(namespace, count, seconds)
        containers = sum(len(pod["spec"]["containers"]) for pod in self.cluster.pods(namespace))
        self.wait_started(namespace, containers)
        return self.cluster.pods(namespace)

    def wait_running(self, namespace: str, count: int, seconds: float) -> None:
        """So many pods of the namespace run; one that fails is an error at once."""

        def running() -> bool:
            pods = self.cluster.pods(namespace)
            failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
            assert not failed, [
                (pod["metadata"]["name"], pod["status"].get("message")) for pod in failed
            ]
            return sum(pod["status"]["phase"] == "Running" for pod in pods) == count

        wait_until(running, seconds, lambda: self._complain(namespace))

    def pod_requests(self, pods: Sequence[Pod]) -> Counter[str]:
        """How often the agent asked the API server anything about each of these pods, by name."""
        names = {pod["metadata"]["name"] for pod in pods}
        asked = [
            event["objectRef"].get("name")
            for event in self.plane.audit_events()
            if event["user"]["username"] == USER and event.get("objectRef")
        ]
        return Counter(name for name in asked if name in names)

    def wait_log(self, words: str, seconds: float = 60) -> None:
        """The agent has logged these words."""
        wait_until(lambda: words in self.agent_log(), seconds, self.agent_tail)

    def restart_container(self, namespace: str, name: str, container: str) -> None:
        """The container was killed, runs again, and has spoken again."""
        (pod,) = self.cluster.pods(namespace, fieldSelector=f"metadata.name={name}")
        self.kill_container(pod, container)
        wait_until(lambda: len(self.reports(pod)[container]) > 1, 60, self.agent_tail)

    def kill_container(self, pod: Pod, container: str) -> None:
        """The first process of the container was killed."""
        (found,) = (
            each for each in pod["status"]["containerStatuses"] if each["name"] == container
        )
        # It is deaf to signals from inside.
        pid = self._first_process(found["containerID"].rpartition("/")[2])
        self.node.run_inside("kill", "-KILL", str(pid))

    def wait_event(self, namespace: str, name: str, words: str, seconds: float = 60) -> str:
        """The event about a pod that has these words."""
        found: list[str] = []
        selector = f"involvedObject.name={name}"

        def told() -> bool:
            with self.plane.api() as api:
                path = f"/api/v1/namespaces/{namespace}/events"
                found[:] = [e["message"] for e in api.get(path, fieldSelector=selector)["items"]]
            return any(words in message for message in found)

        wait_until(told, seconds, lambda: f"nothing says {words!r}: {found}")
        return next(message for message in found if words in message)

    def _complain(self, namespace: str) -> str:
        waiting = [
            (pod["metadata"]["name"], pod["status"].get("containerStatuses"))
            for pod in self.cluster.pods(namespace)
            if pod["status"]["phase"] != "Running"
        ]
        events = self.plane.kubectl("get", "events", "-n", namespace).splitlines()[-20:]
        told = "\n".join(events)
        return f"{len(waiting)} pods wait, such as {waiting[:1]}\n{told}\n{self.agent_tail()}"

    def _count_reports(self, pod: Pod) -> int:
        return sum(bool(reports) for reports in self.reports(pod).values())

    def occupy(self, pods: Sequence[Pod], memory: int) -> None:
        """Every container's first process uses so many MiB of each of its GPUs."""
        allocations = self.allocations(pods)
        processes: dict[str, list[dict[str, int]]] = {gpu.uuid: [] for gpu in self.gpus}
        for pod in pods:
            for status in pod["status"]["containerStatuses"]:
                pid = self._first_process(status["containerID"].rpartition("/")[2])
                for gpu in allocations[pod["metadata"]["name"]][status["name"]]:
                    processes[gpu.uuid].append({"pid": pid, "memory": memory})
        entries = describe_gpus(self.gpus)["gpus"]
        self.describe(gpus=[{**entry, "processes": processes[entry["uuid"]]} for entry in entries])

    def _first_process(self, container: str) -> int:
        """The process id that the node knows a container's first process by."""
        root = Path("/sys/fs/cgroup/memory")
        groups = (root if root.exists() else root.parent) / self.bed.folder.name
        (listed,) = groups.glob(f"**/*{container}*/cgroup.procs")
        outside = listed.read_text().split()[0]
        status = Path(f"/proc/{outside}/status").read_text()
        (known,) = re.findall(r"^NSpid:\s+(.*)$", status, re.M)
        # As the machine knows it, as the testbed and its node do, and as the container does.
        return int(known.split()[1])

    def check_given(self, pods: Sequence[Pod]) -> set[Gpu]:
        """Every start of every GPU container found what it was allocated; gives the GPUs."""
        allocations = self.allocations(pods)
        used = set()
        for pod in pods:
            allocated, reports = allocations[pod["metadata"]["name"]], self.reports(pod)
            assert reports.keys() == allocated.keys()
            for container, gpus in allocated.items():
                for report in reports[container]:
                    check_container(pod, container, gpus, report)
                used.update(gpus)
        return used

    def clear(self) -> None:
        """No pods, no agent, no extender; the GPUs are well."""
        for name in self.bed.processes():
            if name.startswith(EXTENDER):
                self.cluster.stop_extender(name=name)
        self.cluster.clear_pods()
        if self.bed.alive(f"{self.node.name}-{AGENT}"):
            self.stop_agent(signal.SIGKILL)
        self.driver_facts = ()
        self.use_gpus(self._first)

    def _wiring(self) -> list[str]:
        """The flags by which an agent finds this node instead of the machine."""
        return [
            f"--node-name={self.node.name}",
            f"--kubeconfig={self._user.path}",
            f"--address=127.0.0.1:{self._port}",
            f"--dev={self._dev}",
            f"--virtual-manager-path={self.node.folder / 'vm'}",
            f"--driver-volumes={self.node.folder / 'vdriver'}",
            f"--display-socket={self.node.folder / 'display.sock'}",
        ]

    def _environment(self) -> dict[str, str]:
        library = build_library().parent
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(library),
            FILE_VARIABLE: str(self._machine),
            # A checkout that is tried beside the installed one tells its programs so.
            **{key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ},
        }


def containers_of(pod: Pod) -> list[tuple[str, int]]:
    """What changes when a container of the pod is touched."""
    found = pod["status"]["containerStatuses"]
    return sorted((each["containerID"], each["restartCount"]) for each in found)


def _uid(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def _grant(plane: ControlPlane) -> None:
    rules = [make_rule(*right) for right in _RIGHTS]
    # The chart has a role of the user's own name, which some tests apply.
    name = f"{USER}-of-the-testbed"
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": USER}]
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    with plane.api() as api:
        api.create(f"/apis/{_RBAC}/v1/clusterroles", {"metadata": {"name": name}, "rules": rules})
        api.create(f"/apis/{_RBAC}/v1/clusterrolebindings", binding)
