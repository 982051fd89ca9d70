"""nvidia-gpu-scheduler v0.2.0's custom resources and Leases on a real API server.

The agent does not report: everything that the metrics API knows of the node is in the objects.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.agent_node import USER, AgentNode
from e2e.metrics_server import NAME, SECOND, MetricsServer
from e2e.mixture import SHARES, speak
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "slicewise"
GROUP = "/apis/resources.scheduler.caden2016.github.io/v1/namespaces/kube-system"
SPACE = "nvidia-gpu-scheduler-node-lease"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases"
FLAGS = ("--enable-scheduler=false", "--custom-resources")
RBAC = "rbac.authorization.k8s.io"


def render(plane: ControlPlane) -> list[dict[str, Any]]:
    """What the chart adds for custom resources, with the agent's rights for our agent's user."""
    values = ("--values", str(CHART / "ci" / "metrics-api-values.yaml"))
    flag = ("--set", "compatibility.nvidiaGpuScheduler.customResources=true")
    where = ("template", "slicewise", str(CHART), "--namespace", "kube-system")
    command = [plane.binaries.path("helm"), *where, *values, *flag]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"HOME": "/"})
    wanted = []
    for each in yaml.safe_load_all(done.stdout):
        kind, name = each["kind"], each["metadata"]["name"]
        if kind == "RoleBinding" and name.startswith(USER):
            each["subjects"] = [{"apiGroup": RBAC, "kind": "User", "name": USER}]
        ours = kind in ("Role", "RoleBinding") and name.endswith(("-objects", "-leases"))
        if ours or kind in ("CustomResourceDefinition", "Namespace"):
            wanted.append(each)
    return wanted


@pytest.fixture
def server(agent_node: AgentNode) -> Iterator[MetricsServer]:
    """A metrics API with the chart's manifests, whose rights the agent has and no others."""
    plane = agent_node.plane
    server = MetricsServer(plane)
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(render(plane)))
    server.start(*FLAGS)
    yield server
    server.remove()


def gpu_node(server: MetricsServer, name: str) -> dict[str, Any]:
    """The GpuNode of the node; empty when there is none."""
    items = server.get(f"{GROUP}/gpunodes")["items"]
    return next((each for each in items if each["metadata"]["name"] == name), {})


def gpu_pods(server: MetricsServer) -> dict[str, dict[str, Any]]:
    """Every GpuPod by the name of its pod."""
    return {each["spec"]["pod_name"]: each for each in server.get(f"{GROUP}/gpupods")["items"]}


def health(server: MetricsServer, name: str) -> str | None:
    found: str | None = gpu_node(server, name).get("status", {}).get("health")
    return found


def test_objects_carry_a_node_its_pods_and_its_end(
    agent_node: AgentNode, server: MetricsServer
) -> None:
    name, tail = agent_node.node.name, lambda: server.plane.bed.tail(NAME, 20)
    agent_node.start_agent("--custom-resources=kube-system")
    agent_node.wait_allocatable(*SHARES["slicewise"])
    agent_node.start_extender()
    agent_node.cluster.apply(speak("told", SHARES["slicewise"], ["main"]))
    agent_node.wait_spoken("default", 1, 120)

    # What the agent writes.
    wait_until(lambda: "told" in gpu_pods(server), 30, agent_node.agent_tail)
    wait_until(lambda: gpu_node(server, name)["spec"]["device_busy"], 30, agent_node.agent_tail)
    pod, node = gpu_pods(server)["told"], gpu_node(server, name)
    (container,) = pod["spec"]["containers_device"]
    assert [each["device_id"] for each in container["device_info"]] == node["spec"]["device_busy"]
    assert pod["metadata"]["labels"] == {"nvidia-gpu-scheduler.node": name}
    assert pod["status"]["last_changed_time"]
    assert node["spec"]["device_infos"].keys() == {gpu.uuid for gpu in agent_node.gpus}
    lease = server.get(f"{LEASES}/{name}")["spec"]
    assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == (name, 8)
    wait_until(
        lambda: server.get(f"{LEASES}/{name}")["spec"]["renewTime"] != lease["renewTime"],
        20,
        agent_node.agent_tail,
    )

    # What the server reads and its leader writes.
    wait_until(lambda: health(server, name) == "True", 30, tail)
    assert server.get(f"{LEASES}/gpunode-lifecycle-controller")["spec"]["holderIdentity"]
    assert server.health() == {name: "True"}
    assert "default/told" in server.pods()
    (served,) = server.get(f"{SECOND}/gpunodes")["items"]
    assert served["spec"]["device_infos"] == node["spec"]["device_infos"]
    plural = "gpunodes.resources.scheduler.caden2016.github.io"
    printed = server.plane.kubectl("get", plural, "-n", "kube-system")
    assert printed.split()[:2] == ["NAME", "HEATH"]
    assert "True" in printed

    # A node that is lost, seen by the server that leads and by one that has just started.
    agent_node.stop_agent(signal.SIGKILL)
    wait_until(lambda: health(server, name) == "False", 20, tail)
    assert gpu_node(server, name)["status"]["message"] == "the agent has fallen silent"
    server.stop(signal.SIGKILL)
    server.start(*FLAGS)
    wait_until(lambda: "default/told" in server.pods(), 20, tail)
    wait_until(lambda: server.health() == {name: "False"}, 20, tail)

    # A pod that ended meanwhile.
    with server.plane.api() as api:
        api.delete("/api/v1/namespaces/default/pods/told", gracePeriodSeconds=0)
    agent_node.start_agent("--custom-resources=kube-system")
    wait_until(lambda: gpu_pods(server) == {}, 60, agent_node.agent_tail)
    wait_until(lambda: health(server, name) == "True", 60, tail)
    wait_until(lambda: server.pods() == {}, 20, tail)
    # The chart's rights were enough for both.
    assert "not written" not in agent_node.agent_log()
    assert "403 Forbidden" not in server.plane.bed.log(NAME).read_text()
