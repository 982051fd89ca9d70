"""Pods that the original systems placed and marked before Slicewise ever ran."""

from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, elastic_node, gpushare_node, register_node, upstream_node

pytestmark = pytest.mark.cluster
TIME = "1700000000000000000"


def placed(name: str, node: str, limits: dict[str, int], **metadata: Any) -> dict[str, Any]:
    """A pod as the API shows it after another system has bound and marked it."""
    return pod(name, limits, metadata=metadata, nodeName=node)


def admitted(prefix: str, node: str, index: str, assigned: str) -> dict[str, str]:
    """gpu-admission's annotations, as its agent leaves them."""
    return {
        f"{prefix}/predicate-gpu-idx-0": index,
        f"{prefix}/predicate-node": node,
        f"{prefix}/gpu-assigned": assigned,
        f"{prefix}/predicate-time": TIME,
    }


def shared(index: str, units: str) -> dict[str, str]:
    """gpushare's annotations."""
    return {
        "ALIYUN_COM_GPU_MEM_IDX": index,
        "ALIYUN_COM_GPU_MEM_DEV": "23",
        "ALIYUN_COM_GPU_MEM_POD": units,
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": TIME,
    }


def fork(core: int, memory: int = 0) -> dict[str, int]:
    """Limits of gpu-manager's fork."""
    return {
        "nvidia.com/vcuda-core": core,
        **({"nvidia.com/vcuda-memory": memory} if memory else {}),
    }


ASSUMED = {"elasticgpu.io/assumed": "true"}
FORK_LABELS = {"tydic.io/bind-time": TIME, "tydic.io/bind-phase": "success"}
BEFORE = (
    placed(
        "fork-share",
        "fork",
        fork(30, 7001),
        annotations=admitted("nvidia.com", "fork", "1", "true"),
        labels=FORK_LABELS,
    ),
    placed(
        "fork-gpus",
        "fork",
        fork(200),
        annotations=admitted("nvidia.com", "fork", "2,3", "false"),
        labels=FORK_LABELS,
    ),
    placed(
        "upstream",
        "upstream",
        {"tencent.com/vcuda-core": 25, "tencent.com/vcuda-memory": 17},
        annotations=admitted("tencent.com", "upstream", "0", "true"),
    ),
    placed("share-a", "share", {"aliyun.com/gpu-mem": 5}, annotations=shared("1", "5")),
    placed("share-b", "share", {"aliyun.com/gpu-mem": 7}, annotations=shared("1", "7")),
    placed(
        "elastic",
        "elastic",
        {"elasticgpu.io/gpu-core": 35, "elasticgpu.io/gpu-memory": 1234},
        annotations={**ASSUMED, "elasticgpu.io/container-main": "1"},
        labels=ASSUMED,
    ),
)


def add_old_world(cluster: GpuCluster) -> None:
    """Nodes of four systems, and pods that run on them before any extender does."""
    cluster.add_nodes(
        register_node("fork", A10, 4),
        upstream_node("upstream", A10, 2),
        gpushare_node("share", 23, 2),
        elastic_node("elastic", A10, 2),
    )
    cluster.plane.start_scheduler({})
    cluster.apply(*BEFORE, namespace="before")
    cluster.wait_running("before", len(BEFORE))


def test_pods_of_the_original_systems_are_counted_to_the_mib(gpu_cluster: GpuCluster) -> None:
    add_old_world(gpu_cluster)

    gpu_cluster.start_extender()

    whole = (100, A10[1])
    assert gpu_cluster.gpus() == {
        "fork": [(0, 0), (30, 7001), whole, whole],
        "upstream": [(25, 17 * 256), (0, 0)],
        "share": [(0, 0), (0, 12 * 1024)],
        "elastic": [(0, 0), (35, 1234)],
    }
    (node,) = gpu_cluster.ask("/gpushare-scheduler/inspect/share")["nodes"]
    assert (node["totalGPU"], node["usedGPU"]) == (46, 12)
    assert [device["usedGPU"] for device in node["devs"]] == [0, 12]
    assert [each["name"] for each in node["devs"][1]["pods"]] == ["share-a", "share-b"]


def test_the_last_mib_beside_old_pods_is_given_out_and_not_one_more(
    gpu_cluster: GpuCluster,
) -> None:
    add_old_world(gpu_cluster)
    url = gpu_cluster.start_extender()
    gpu_cluster.schedule_with(wirings.gpu_scheduler(url))
    left = A10[1] - 7001

    def on_fork(name: str, core: int, memory: int = 0) -> dict[str, Any]:
        return pod(name, fork(core, memory), nodeSelector={"kubernetes.io/hostname": "fork"})

    # GPU 0 is filled first, so that the free part of GPU 1 is all there is.
    gpu_cluster.apply(on_fork("gpu", 100), namespace="after")
    gpu_cluster.wait_running("after", 1)
    gpu_cluster.apply(on_fork("more", 70, left + 1), namespace="after")
    gpu_cluster.wait_message("after", "more", "Insufficient GPU memory")
    gpu_cluster.apply(on_fork("wider", 71, left), namespace="after")
    gpu_cluster.wait_message("after", "wider", "Insufficient GPU compute")
    gpu_cluster.apply(on_fork("exact", 70, left), namespace="after")

    gpu_cluster.wait_running("after", 2)
    assert gpu_cluster.gpus()["fork"][1] == (100, A10[1])
