"""The policy `load` on a real cluster: agents report to a real metrics API, and pods go by it."""

from collections.abc import Callable, Iterator

import pytest

from e2e import wirings
from e2e.gpu_cluster import NAME, GpuCluster, pod
from e2e.metrics_server import Fleet, MetricsServer
from slicewise.dialects import GPUS, write_gpus
from slicewise.model import Gpu, MiB, Node
from slicewise.reports import GpuReport, MeasuredUse, NodeReport
from slicewise_playground.kubelet.simulated_node import SimulatedNode
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
MODEL, MEMORY = "NVIDIA A10", 23028
SHARE = {"slicewise.io/cores": 10, "slicewise.io/memory": 1024}
CAPACITY = {"slicewise.io/gpu": 200, "slicewise.io/cores": 200, "slicewise.io/memory": 2 * MEMORY}


def make_node(name: str) -> SimulatedNode:
    gpus = (Gpu(at, f"GPU-{name}-{at}", MODEL, MiB(MEMORY), minor=at) for at in range(2))
    annotations = {GPUS: write_gpus(Node(name, tuple(gpus)))}
    return SimulatedNode(name, CAPACITY, {}, annotations)


def report(name: str, *percents: int) -> NodeReport:
    """A node whose GPUs are as busy as that."""
    gpus = tuple(
        GpuReport(
            uuid=f"GPU-{name}-{at}", model=MODEL, index=at, memory_mib=MEMORY,
            use=MeasuredUse(memory_mib=100, cores=percent),
        )
        for at, percent in enumerate(percents)
    )  # fmt: skip
    return NodeReport(node=name, gpus=gpus)


@pytest.fixture
def fleet(gpu_cluster: GpuCluster) -> Iterator[Fleet]:
    server = MetricsServer(gpu_cluster.plane)
    server.start()
    fleet = Fleet(server)
    yield fleet
    fleet.close()
    server.remove()


def wait_load(cluster: GpuCluster, known: Callable[[dict[str, list[int]]], bool]) -> None:
    """The extender knows such a load of the nodes' GPUs, by its explanation of a pod."""
    found: dict[str, list[int]] = {}

    def look() -> bool:
        told = cluster.ask("/explain?pod=load/probe")
        found.update(
            {
                each["node"]: [gpu["loadPercent"] for gpu in each["gpus"] if "loadPercent" in gpu]
                for each in told["nodes"]
            }
        )
        return known(found)

    wait_until(look, 40, lambda: f"{found}: {cluster.bed.tail(NAME)}")


def place(cluster: GpuCluster, name: str) -> tuple[str, str]:
    """The node and the record of a new pod."""
    cluster.apply(pod(name, SHARE), namespace="load")
    bound = cluster.wait_bound("load", name)
    return bound["spec"]["nodeName"], bound["metadata"]["annotations"]["slicewise.io/allocation"]


def test_extender_without_a_metrics_api_says_that_no_load_is_measured(
    gpu_cluster: GpuCluster,
) -> None:
    gpu_cluster.start_extender("--policy=load")
    log = gpu_cluster.bed.log(NAME)

    wait_until(
        lambda: "load is not measured" in log.read_text(errors="replace"),
        20,
        lambda: gpu_cluster.bed.tail(NAME),
    )
    assert "no metrics API answers" in log.read_text(errors="replace")


def test_idle_node_is_chosen_and_a_gpu_whose_tenant_bursts_is_avoided(
    gpu_cluster: GpuCluster, fleet: Fleet
) -> None:
    url = gpu_cluster.start_extender("--policy=load")
    gpu_cluster.add_nodes(make_node("one"), make_node("two"))
    gpu_cluster.schedule_with(wirings.everything(url))
    # Nobody schedules this one, so that the extender can be asked about it all along.
    gpu_cluster.apply(pod("probe", SHARE, schedulerName="nobody"), namespace="load")
    fleet.report(report("one", 90, 80))
    fleet.report(report("two", 10, 0))
    wait_load(gpu_cluster, lambda found: found == {"one": [90, 80], "two": [10, 0]})

    first = place(gpu_cluster, "first")
    # The tenant of the idle GPU bursts, and is quiet again at once.
    fleet.report(report("two", 10, 100))
    wait_load(gpu_cluster, lambda found: found["two"][1] > 60)
    fleet.report(report("two", 10, 0))
    second = place(gpu_cluster, "second")

    assert first[0] == "two"
    assert "GPU-two-1" in first[1]
    assert second[0] == "two"
    assert "GPU-two-0" in second[1]
