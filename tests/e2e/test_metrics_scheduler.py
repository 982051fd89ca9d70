"""nvidia-gpu-scheduler's own configuration of the scheduler, through the aggregation layer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e import wirings
from e2e.gpu_cluster import pod, read_manifests
from e2e.metrics_server import NAME, Fleet, MetricsServer
from slicewise.reports import ContainerReport, DeviceReport, GpuReport, NodeReport, PodReport
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"
WANTED = {"annotations": {"nvidia.com/gpu.model": "Tesla T4"}}


@pytest.fixture(scope="module")
def plane(kube_binaries: Binaries) -> Iterator[ControlPlane]:
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries).start()
        # Neither label nor annotation says which GPUs these are; only their agents know.
        nodes = [
            SimulatedNode("t4", {"nvidia.com/gpu": 2}),
            SimulatedNode("a10", {"nvidia.com/gpu": 8}),
        ]
        SimulatedNodes(plane).start().add(nodes)
        yield plane


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[MetricsServer]:
    server = MetricsServer(plane)
    server.start("--enable-scheduler")
    user = plane.kubeconfig("system:kube-scheduler").user
    authority = plane.authority.certificate.certificate
    files = {"caFile": authority, "certFile": user.certificate, "keyFile": user.key}
    tls = {key: str(path) for key, path in files.items()}
    # The users' `ignorable: true` would hide a refusal behind a lucky placement.
    wiring = {**wirings.gpuscheduler(plane.server), "tlsConfig": tls, "ignorable": False}
    plane.start_scheduler({"extenders": [wiring]})
    yield server
    server.remove()


@pytest.fixture
def fleet(server: MetricsServer) -> Iterator[Fleet]:
    fleet = Fleet(server)
    fleet.report(report("t4", "Tesla T4", 2))
    fleet.report(report("a10", "NVIDIA A10", 8))
    wait_until(
        lambda: server.health() == {"t4": "True", "a10": "True"},
        30,
        lambda: server.plane.bed.tail(NAME, 20),
    )
    yield fleet
    fleet.close()
    with server.plane.api() as api:
        api.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds=0)


def report(name: str, model: str, count: int, **held: int) -> NodeReport:
    """A node whose pods hold so many of its GPUs each, from the first on."""
    gpus = tuple(
        GpuReport(uuid=f"GPU-{name}-{at}", model=model, index=at, memory_mib=15360)
        for at in range(count)
    )
    pods, at = [], 0
    for each, taken in held.items():
        devices = tuple(DeviceReport(gpu=gpu.uuid) for gpu in gpus[at : at + taken])
        main = ContainerReport(name="main", devices=devices)
        pods.append(PodReport(namespace="default", name=each, containers=(main,)))
        at += taken
    return NodeReport(node=name, gpus=gpus, pods=tuple(pods))


def apply(server: MetricsServer, *documents: object) -> None:
    server.plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(documents))


def place(server: MetricsServer, name: str, seconds: float = 60) -> str:
    """The pod's node, once it has one."""
    with server.plane.api() as api:
        path = f"/api/v1/namespaces/default/pods/{name}"
        found = api.wait_for(path, lambda each: each["spec"].get("nodeName"), seconds)
    node: str = found["spec"]["nodeName"]
    return node


def test_example_pod_gets_the_model_that_only_the_agents_know(server, fleet):
    apply(server, *read_manifests(EXAMPLES, ["nvidia-gpu-scheduler/two-of-a-model.yaml"]))

    assert place(server, "two-of-a-model") == "t4"


def test_pod_without_a_wanted_model_is_left_to_the_scheduler(server, fleet):
    apply(server, pod("any", {"nvidia.com/gpu": 8}))

    assert place(server, "any") == "a10"


def test_gpus_that_the_kubelet_gave_away_are_known_one_by_one(server, fleet):
    apply(server, pod("one", {"nvidia.com/gpu": 1}, metadata=WANTED))
    assert place(server, "one") == "t4"
    fleet.report(report("t4", "Tesla T4", 2, one=1))

    apply(server, pod("two", {"nvidia.com/gpu": 1}, metadata=WANTED))

    assert place(server, "two") == "t4"


def test_silent_node_gets_no_pod_until_it_speaks_again(server, fleet):
    fleet.stop("t4")
    wait_until(lambda: server.health()["t4"] == "False", 30, lambda: "still well")
    apply(server, pod("late", {"nvidia.com/gpu": 1}, metadata=WANTED))
    with server.plane.api() as api:
        selector = "involvedObject.name=late,reason=FailedScheduling"
        path = "/api/v1/namespaces/default/events"

        def refused() -> bool:
            return bool(api.get(path, fieldSelector=selector)["items"])

        wait_until(refused, 60, lambda: server.plane.bed.tail(NAME, 20))
        message = api.get(path, fieldSelector=selector)["items"][0]["message"]

    fleet.report(report("t4", "Tesla T4", 2))
    wait_until(lambda: server.health()["t4"] == "True", 30, lambda: "still unhealthy")
    # The scheduler tries such a pod again when it sees anything change on a node.
    server.plane.kubectl("label", "node", "t4", "seen=again")

    assert "1 Too few healthy GPUs" in message
    assert place(server, "late", 120) == "t4"
