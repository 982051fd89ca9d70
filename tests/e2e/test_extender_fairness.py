"""Fairness on a real cluster: small pods keep coming, and the pod of a whole GPU is bound."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, mixed_node
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
SPACE = "queue"
KEPT = "slicewise.io/room-kept"


@pytest.fixture
def fair(gpu_cluster: GpuCluster) -> Iterator[GpuCluster]:
    """An extender that keeps room after a second, and a node of two GPUs with a share on each."""
    url = gpu_cluster.start_extender("--fair-after=1", "--fair-for=120")
    gpu_cluster.add_nodes(mixed_node("two", A10, 2))
    gpu_cluster.schedule_with(wirings.everything(url))
    gpu_cluster.apply(share("old-0", 0), share("old-1", 1), namespace=SPACE)
    gpu_cluster.wait_running(SPACE, 2)
    return gpu_cluster


def share(name: str, gpu: int) -> dict[str, Any]:
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": A10[1] // 2}
    wish = {"annotations": {"slicewise.io/uuids": f"GPU-two-{gpu}"}}
    return pod(name, limits, metadata=wish)


def find(cluster: GpuCluster, name: str) -> dict[str, Any]:
    (found,) = (each for each in cluster.pods(SPACE) if each["metadata"]["name"] == name)
    return found


def test_pod_of_a_whole_gpu_is_bound_though_small_pods_want_what_becomes_free(
    fair: GpuCluster,
) -> None:
    fair.apply(pod("whole", {"slicewise.io/cores": 100}), namespace=SPACE)
    kept = lambda: find(fair, "whole")["metadata"].get("annotations", {}).get(KEPT)  # noqa: E731
    wait_until(lambda: bool(kept()), 30, lambda: fair.bed.tail("extender"))
    gpu = 0 if "old-0" in kept() else 1

    # The free half of one GPU is kept, and that of the other is anybody's.
    fair.apply(share("late-0", 0), share("late-1", 1), namespace=SPACE)
    fair.wait_bound(SPACE, f"late-{1 - gpu}")
    fair.wait_message(SPACE, f"late-{gpu}", "GPU")
    told = fair.ask(f"/explain?pod={SPACE}/whole")["roomKept"]
    fair.plane.kubectl("delete", "pod", f"old-{gpu}", "-n", SPACE)
    bound = fair.wait_bound(SPACE, "whole", 60)

    assert told.startswith("on node two until ")
    assert f"GPU-two-{gpu}" in bound["metadata"]["annotations"]["slicewise.io/allocation"]
    assert "nodeName" not in find(fair, f"late-{gpu}")["spec"]
