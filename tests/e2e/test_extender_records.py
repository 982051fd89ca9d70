"""Pods that nvidia-gpu-scheduler's own configuration leaves to the default binder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import USER, WRITES, GpuCluster, pod, read_manifests
from e2e.gpu_nodes import A10, T4, mixed_node, nvidia_node
from e2e.truth import held_gpus
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"
RECORD = "slicewise.io/allocation"


def recorded(found: Mapping[str, Any]) -> bool:
    """Whether the pod says which GPUs it has."""
    return RECORD in found["metadata"].get("annotations", {})


def wait_recorded(cluster: GpuCluster, namespace: str, count: int) -> list[dict[str, Any]]:
    """The pods of a namespace once so many of them say which GPUs they have."""

    def complaint() -> str:
        return f"not {count} records in {namespace}: {cluster.bed.tail('extender')}"

    wait_until(lambda: sum(map(recorded, cluster.pods(namespace))) == count, 40, complaint)
    return cluster.pods(namespace)


def carried_out(cluster: GpuCluster, since: int) -> list[tuple[str, str]]:
    """What the extender changed, events aside; a pod that changed meanwhile is refused first."""
    return [
        (event["verb"], event["objectRef"]["resource"])
        for event in list(cluster.plane.audit_events())[since:]
        if event["user"]["username"] == USER
        and event["verb"] in WRITES
        and event["objectRef"]["resource"] not in ("events", "leases")
        and event["responseStatus"]["code"] < 300
    ]


def test_pods_of_its_own_configuration_are_recorded_and_every_gpu_is_counted(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("t4", T4, 4), mixed_node("a10", A10, 2))
    gpu_cluster.schedule_with(wirings.gpuscheduler(url))
    documents = read_manifests(EXAMPLES, ["nvidia-gpu-scheduler/two-of-a-model.yaml"])
    mark = gpu_cluster.audit_mark()

    wanted = {"annotations": {"nvidia.com/gpu.model": "Tesla T4"}}
    single = [pod(f"one-{at}", {"nvidia.com/gpu": 1}, metadata=wanted) for at in range(2)]
    gpu_cluster.apply(*documents, *single, namespace="models")
    gpu_cluster.wait_running("models", 3)

    found = wait_recorded(gpu_cluster, "models", 3)
    assert {each["spec"]["nodeName"] for each in found} == {"t4"}
    sizes = {"t4": [T4[1]] * 4, "a10": [A10[1]] * 2}
    held = held_gpus(found, sizes)
    assert held == {"t4": [(100, T4[1])] * 4, "a10": [(0, 0)] * 2}
    assert gpu_cluster.gpus() == held
    assert carried_out(gpu_cluster, mark) == [("patch", "pods")] * 3
    # The model is used up, so the next pod waits and hears why.
    gpu_cluster.apply(pod("late", {"nvidia.com/gpu": 1}, metadata=wanted), namespace="models")
    gpu_cluster.wait_message("models", "late", "Insufficient")


def test_shares_of_other_systems_stay_off_gpus_that_the_default_binder_filled(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("t4", T4, 2))
    gpu_cluster.schedule_with(wirings.gpuscheduler(url))
    gpu_cluster.apply(pod("whole", {"nvidia.com/gpu": 1}), namespace="beside")
    wait_recorded(gpu_cluster, "beside", 1)
    gpu_cluster.schedule_with(wirings.everything(url))

    shares = {"slicewise.io/cores": 40, "slicewise.io/memory": 4000}
    gpu_cluster.apply(*(pod(f"share-{at}", shares) for at in range(3)), namespace="beside")

    gpu_cluster.wait_running("beside", 3)
    # Pods made in one second are tried in any order.
    (late,) = gpu_cluster.pods("beside", fieldSelector="status.phase=Pending")
    gpu_cluster.wait_message("beside", late["metadata"]["name"], "Insufficient")
    held = held_gpus(gpu_cluster.pods("beside"), {"t4": [T4[1]] * 2})
    assert sorted(held["t4"]) == [(80, 8000), (100, T4[1])]
    assert gpu_cluster.gpus() == held


def test_pods_on_a_node_of_nvidias_plugin_are_counted_and_left_alone(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(nvidia_node("plugin", T4, 3))
    gpu_cluster.schedule_with(wirings.gpuscheduler(url))

    gpu_cluster.apply(pod("two", {"nvidia.com/gpu": 2}), namespace="plugin")

    gpu_cluster.wait_running("plugin", 1)
    taken = [(0, 0), (100, T4[1]), (100, T4[1])]
    wait_until(
        lambda: sorted(gpu_cluster.gpus()["plugin"]) == taken,
        20,
        lambda: f"counted are {gpu_cluster.gpus()}",
    )
    assert not any(map(recorded, gpu_cluster.pods("plugin")))


def test_pod_bound_by_hand_where_no_gpu_is_free_is_told_so(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("t4", T4, 1))
    gpu_cluster.schedule_with(wirings.gpuscheduler(url))
    gpu_cluster.apply(pod("first", {"nvidia.com/gpu": 1}), namespace="full")
    wait_recorded(gpu_cluster, "full", 1)

    gpu_cluster.apply(pod("second", {"nvidia.com/gpu": 1}, nodeName="t4"), namespace="full")

    def told() -> bool:
        with gpu_cluster.plane.api() as api:
            path = "/api/v1/namespaces/full/events"
            events = api.get(path, fieldSelector="involvedObject.name=second")["items"]
        return any(each["reason"] == "GpuNotAssigned" for each in events)

    wait_until(told, 30, lambda: f"nobody told: {gpu_cluster.bed.tail('extender')}")
    assert recorded(next(iter(gpu_cluster.pods("full", fieldSelector="metadata.name=first"))))
    # The first leaves, so its GPU is given to the second.
    gpu_cluster.plane.kubectl("delete", "pod", "first", "-n", "full", "--wait=false")
    wait_recorded(gpu_cluster, "full", 1)
    (left,) = gpu_cluster.pods("full", fieldSelector="metadata.name=second")
    assert held_gpus([left], {"t4": [T4[1]]}) == {"t4": [(100, T4[1])]}
