import json
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from e2e import wirings
from e2e.balancer import Balancer, Splitter, is_ready
from e2e.gpu_cluster import NAME, GpuCluster, pod
from e2e.gpu_nodes import A10, mixed_node
from e2e.truth import held_gpus
from slicewise_testbed.simulated_nodes import create_all
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slicewise-extender"
NODES = [f"node-{at:02}" for at in range(20)]
# Whoever is killed gives no lease up; without election others wait for it less long.
ALONE = "--no-leader-elect"
SIZES = {name: [A10[1]] * 4 for name in NODES}
# 80 GPUs hold 480 pods of these: a burst of 500 fills every GPU, and some pods must wait.
KINDS = (
    {"nvidia.com/vcuda-core": 16, "nvidia.com/vcuda-memory": 4000},
    {"elasticgpu.io/gpu-core": 16, "elasticgpu.io/gpu-memory": 4000},
    {"slicewise.io/cores": 16, "slicewise.io/memory": 4000},
    {"aliyun.com/gpu-mem": 4},
)


def begin(cluster: GpuCluster, url: str) -> None:
    """Twenty nodes of four GPUs, and a scheduler that asks this extender."""
    cluster.add_nodes(*(mixed_node(name, A10, 4) for name in NODES))
    cluster.schedule_with({**wirings.everything(url), "httpTimeout": "5s"})


def begin_busy(cluster: GpuCluster, url: str, namespace: str, count: int) -> None:
    """The same with so many pods waiting before the scheduler starts, to be met at its work."""
    cluster.plane.stop_scheduler()
    burst(cluster, namespace, count)
    begin(cluster, url)


def burst(cluster: GpuCluster, namespace: str, count: int) -> None:
    """So many pods of four systems are created as fast as the API takes them."""
    cluster.make_namespace(namespace)
    pods = (pod(f"p{at:03}", KINDS[at % len(KINDS)]) for at in range(count))
    create_all(cluster.plane, ((f"/api/v1/namespaces/{namespace}/pods", each) for each in pods))


def wait_middle(cluster: GpuCluster, namespace: str, count: int) -> None:
    """At least so many pods of a burst have a node; on a fast machine it may be all of them."""
    wait_until(
        lambda: count_bound(cluster, namespace) >= count,
        60,
        lambda: f"not {count} pods are bound: {cluster.bed.tail(NAME)}",
    )


def count_bound(cluster: GpuCluster, namespace: str) -> int:
    """How many pods have a node."""
    return sum("nodeName" in each["spec"] for each in cluster.pods(namespace))


def check(cluster: GpuCluster, name: str = NAME) -> dict[str, list[tuple[int, int]]]:
    """No GPU holds more than it has, and the ledger says what the pods say."""
    held = held_gpus(cluster.pods(), SIZES)
    for gpus in held.values():
        assert all(cores <= 100 and memory <= A10[1] for cores, memory in gpus), held
    assert cluster.gpus(name) == held
    return held


def test_burst_of_500_pods_survives_killed_extenders(gpu_cluster: GpuCluster) -> None:
    begin(gpu_cluster, gpu_cluster.start_extender(ALONE))

    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(burst, gpu_cluster, "killed", 500)
        for bound in (50, 150, 250):
            wait_middle(gpu_cluster, "killed", bound)
            # Here pods are still being made, so the burst cannot be over.
            assert count_bound(gpu_cluster, "killed") < 500
            gpu_cluster.stop_extender(signal.SIGKILL)
            gpu_cluster.start_extender(ALONE)
        made.result()

    placed = gpu_cluster.wait_settled("killed", 500, 120)
    held = check(gpu_cluster)
    assert len(placed) >= 480
    # A ledger built from nothing but what is written must be the same.
    gpu_cluster.stop_extender(signal.SIGKILL)
    gpu_cluster.start_extender(ALONE)
    assert check(gpu_cluster) == held


def test_burst_of_pods_survives_a_killed_api_server(gpu_cluster: GpuCluster) -> None:
    begin_busy(gpu_cluster, gpu_cluster.start_extender(), "restart", 300)

    wait_middle(gpu_cluster, "restart", 60)
    gpu_cluster.plane.stop_apiserver()
    gpu_cluster.plane.start_apiserver()

    placed = gpu_cluster.wait_settled("restart", 300, 120)
    assert len(placed) == 300
    check(gpu_cluster)


def test_frozen_leader_is_followed_by_another_and_decides_no_more(gpu_cluster: GpuCluster) -> None:
    urls, leader, follower = start_two(gpu_cluster)
    with Balancer(urls) as balancer:
        begin_busy(gpu_cluster, balancer.url, "elected", 300)
        wait_middle(gpu_cluster, "elected", 40)
        gpu_cluster.signal_extender("STOP", leader)
        wait_until(lambda: gpu_cluster.ready(follower), 40, lambda: gpu_cluster.bed.tail(follower))
        gpu_cluster.signal_extender("CONT", leader)

        # The old leader still has a ledger and a port, but no lease.
        answer = ask_filter(gpu_cluster.url(leader))
        assert answer["NodeNames"] is None
        assert "does not lead" in answer["Error"]
        placed = gpu_cluster.wait_settled("elected", 300, 120)
        assert len(placed) == 300
        check(gpu_cluster, follower)
        # Both watch, so the one that does not lead knows the same.
        check(gpu_cluster, leader)


def start_two(cluster: GpuCluster) -> tuple[list[str], str, str]:
    """The addresses of two extenders, and which of them leads and which follows."""
    names = ("extender-a", "extender-b")
    urls = [cluster.start_extender(name=name, ready=False) for name in names]
    wait_until(lambda: any(map(is_ready, urls)), 30, lambda: cluster.bed.tail(names[0]))
    leader, follower = names if is_ready(urls[0]) else reversed(names)
    return urls, leader, follower


def lease_holder(cluster: GpuCluster) -> str:
    """Who holds the extenders' lease; empty when it was given up."""
    with cluster.plane.api() as api:
        return str(api.get(LEASE)["spec"].get("holderIdentity", ""))


def test_leader_that_is_told_to_stop_hands_over_at_once(gpu_cluster: GpuCluster) -> None:
    urls, leader, follower = start_two(gpu_cluster)
    with Balancer(urls) as balancer:
        begin_busy(gpu_cluster, balancer.url, "handed-over", 300)
        wait_middle(gpu_cluster, "handed-over", 40)
        held = lease_holder(gpu_cluster)
        gpu_cluster.stop_extender(signal.SIGTERM, leader)
        # Whoever vanishes keeps the lease for 15 seconds; one who leaves gives it up.
        assert lease_holder(gpu_cluster) != held
        wait_until(lambda: gpu_cluster.ready(follower), 40, lambda: gpu_cluster.bed.tail(follower))

        placed = gpu_cluster.wait_settled("handed-over", 300, 120)
        assert len(placed) == 300
        check(gpu_cluster, follower)


def test_requests_to_both_extenders_during_a_change_break_no_promise(
    gpu_cluster: GpuCluster,
) -> None:
    urls, leader, follower = start_two(gpu_cluster)
    with Splitter(urls) as splitter:
        begin_busy(gpu_cluster, splitter.url, "both", 200)
        wait_middle(gpu_cluster, "both", 20)
        gpu_cluster.signal_extender("STOP", leader)
        wait_until(lambda: gpu_cluster.ready(follower), 40, lambda: gpu_cluster.bed.tail(follower))
        gpu_cluster.signal_extender("CONT", leader)

        placed = gpu_cluster.wait_settled("both", 200, 180)
        assert len(placed) == 200
        check(gpu_cluster, follower)
        check(gpu_cluster, leader)


def ask_filter(url: str) -> dict[str, Any]:
    """What an extender says of a pod that fits every node."""
    body = {"Pod": pod("asked", KINDS[0]), "NodeNames": NODES, "Nodes": None}
    body["Pod"]["metadata"]["uid"] = "0"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/filter", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        decoded: dict[str, Any] = json.load(answer)
    return decoded
