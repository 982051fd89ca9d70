from collections import Counter

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, marks_of, pod
from e2e.gpu_nodes import A10, gpushare_node, mixed_node
from slicewise_testbed.versions import chosen_version, minor

pytestmark = pytest.mark.cluster
LIMITS = (
    {"nvidia.com/vcuda-core": 10, "nvidia.com/vcuda-memory": 1000},
    {"aliyun.com/gpu-mem": 1},
    {"elasticgpu.io/gpu-core": 10},
    {"slicewise.io/cores": 10, "slicewise.io/memory": 1000},
    {"nvidia.com/gpu": 1},
)


def test_each_pod_costs_one_write_and_no_node_is_written(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(*(mixed_node(f"node-{at}", A10, 8) for at in range(5)))
    gpu_cluster.schedule_with(wirings.everything(url))
    mark = gpu_cluster.audit_mark()

    pods = [pod(f"p{at:02}", LIMITS[at % len(LIMITS)]) for at in range(50)]
    gpu_cluster.apply(*pods, namespace="writes")
    found = gpu_cluster.wait_running("writes", 50)

    writes = Counter(gpu_cluster.writes(mark))
    del writes["create", "events"]
    # Two of the five systems have labels, which servers before 1.35 take in a write of their own.
    patches = {} if minor(chosen_version()) >= 35 else {("patch", "pods"): 20}
    assert writes == {("create", "pods/binding"): 50, **patches}
    bound = [
        event["objectRef"]["name"]
        for event in list(gpu_cluster.plane.audit_events())[mark:]
        if event.get("objectRef", {}).get("subresource") == "binding"
    ]
    assert sorted(bound) == [f"p{at:02}" for at in range(50)]
    assert all(marks_of(each, "slicewise.io/signature") for each in found)


def test_rejected_pod_costs_no_write_until_there_is_room(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(gpushare_node("small", 4, 1))
    gpu_cluster.schedule_with(wirings.gpushare(url))
    mark = gpu_cluster.audit_mark()
    gpu_cluster.apply(pod("large", {"aliyun.com/gpu-mem": 3}), namespace="room")
    gpu_cluster.wait_running("room", 1)

    gpu_cluster.apply(pod("waiting", {"aliyun.com/gpu-mem": 1}), namespace="room")
    gpu_cluster.wait_running("room", 2)
    gpu_cluster.apply(pod("later", {"aliyun.com/gpu-mem": 3}), namespace="room")
    gpu_cluster.wait_message("room", "later", "Insufficient")
    gpu_cluster.plane.kubectl("delete", "pod", "large", "-n", "room")

    gpu_cluster.wait_running("room", 2)
    writes = [write for write in gpu_cluster.writes(mark) if write[1] != "events"]
    assert writes == [("create", "pods/binding")] * 3
