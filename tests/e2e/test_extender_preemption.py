from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, mixed_node

pytestmark = pytest.mark.cluster
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES = {"low": 100, "middle": 200, "high": 300}


@pytest.fixture
def classes(gpu_cluster: GpuCluster) -> Any:
    """Three priority classes."""
    with gpu_cluster.plane.api() as api:
        for name, value in PRIORITIES.items():
            api.create(CLASSES, {"metadata": {"name": name}, "value": value})
        yield
        for name in PRIORITIES:
            api.delete(f"{CLASSES}/{name}")


def half(name: str, gpu: str, priority: str) -> dict[str, Any]:
    """A pod of some priority with half of this very GPU."""
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": A10[1] // 2}
    wish = {"annotations": {"slicewise.io/uuids": gpu}}
    return pod(name, limits, metadata=wish, priorityClassName=priority)


def fill(cluster: GpuCluster, *pods: dict[str, Any]) -> None:
    """The pods run; each is older than the next, which the scheduler looks at."""
    for at, each in enumerate(pods, 1):
        cluster.apply(each, namespace="preempt")
        cluster.wait_running("preempt", at)


def urge(cluster: GpuCluster, count: int) -> set[str]:
    """The names of the pods that are left once a pod of high priority has a whole GPU."""
    urgent = pod("urgent", {"slicewise.io/cores": 100}, priorityClassName="high")
    cluster.apply(urgent, namespace="preempt")
    cluster.wait_bound("preempt", "urgent")
    cluster.wait_running("preempt", count)
    return {found["metadata"]["name"] for found in cluster.pods("preempt")}


@pytest.mark.usefixtures("classes")
def test_preemption_frees_one_gpu_where_the_scheduler_alone_would_halve_two(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("full", A10, 2))
    gpu_cluster.schedule_with(wirings.everything(url))
    fill(
        gpu_cluster,
        half("old-0", "GPU-full-0", "low"),
        half("old-1", "GPU-full-1", "low"),
        # By sums alone these two would go, for they are the youngest.
        half("young-0", "GPU-full-0", "low"),
        half("young-1", "GPU-full-1", "low"),
    )

    left = urge(gpu_cluster, 3)

    assert left in ({"urgent", "old-0", "young-0"}, {"urgent", "old-1", "young-1"})


@pytest.mark.usefixtures("classes")
def test_preemption_spares_the_more_important_gpu_and_the_other_node(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("busy", A10, 1), mixed_node("full", A10, 2))
    gpu_cluster.schedule_with(wirings.everything(url))
    fill(
        gpu_cluster,
        half("middle-0", "GPU-full-0", "middle"),
        half("low-0", "GPU-full-1", "low"),
        half("low-1", "GPU-full-1", "low"),
        half("low-beside", "GPU-full-0", "low"),
        half("busy-0", "GPU-busy-0", "high"),
        half("busy-1", "GPU-busy-0", "high"),
    )

    left = urge(gpu_cluster, 5)

    assert left == {"urgent", "middle-0", "low-beside", "busy-0", "busy-1"}


@pytest.mark.usefixtures("classes")
def test_urgent_pods_at_once_each_get_a_gpu_and_nobody_is_evicted_in_vain(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("full", A10, 4))
    gpu_cluster.schedule_with(wirings.everything(url))
    shares = [
        half(f"low-{gpu}-{at}", f"GPU-full-{gpu}", "low") for gpu in range(4) for at in (0, 1)
    ]
    fill(gpu_cluster, *shares)
    urgent = [f"urgent-{at}" for at in range(3)]

    for at, name in enumerate(urgent):
        limits = {"slicewise.io/cores": 100}
        gpu_cluster.apply(pod(name, limits, priorityClassName="high"), namespace="preempt")
        # These race for the room that is just being made.
        late = half(f"late-{at}", f"GPU-full-{at}", "low")
        gpu_cluster.apply(late, namespace="preempt")
    for name in urgent:
        gpu_cluster.wait_bound("preempt", name)
    gpu_cluster.wait_running("preempt", 5)

    left = {found["metadata"]["name"] for found in gpu_cluster.pods("preempt")}
    low = sorted(name for name in left if name.startswith("low"))
    assert left >= set(urgent)
    assert len(low) == 2
    assert low[0].rpartition("-")[0] == low[1].rpartition("-")[0]
