import json
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, marks_of, pod
from e2e.gpu_nodes import A10, A100, mixed_node

pytestmark = pytest.mark.cluster
QUOTA = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture
def quota(gpu_cluster: GpuCluster) -> Any:
    """One A100 and four A10 for team-a, as gpu-admission's users write it."""
    text = json.dumps({"team-a": {"quota": {"A100": 1, "A10": 4}}})
    with gpu_cluster.plane.api() as api:
        api.create(QUOTA, {"metadata": {"name": "gpuquota"}, "data": {"gpu_quota": text}})
        yield
        api.delete(f"{QUOTA}/gpuquota")


def share(name: str, model: str, cores: int = 60) -> dict[str, Any]:
    """A pod that wants a share of one model, in the words of gpu-admission's fork."""
    limits = {"nvidia.com/vcuda-core": cores, "nvidia.com/vcuda-memory": 4000}
    return pod(name, limits, metadata={"annotations": {"nvidia.com/use-gputype": model}})


@pytest.mark.usefixtures("quota")
def test_namespace_over_its_quota_of_a_model_is_told_so_and_gets_another(
    gpu_cluster: GpuCluster,
) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("big", A100, 4), mixed_node("small", A10, 4))
    gpu_cluster.schedule_with(wirings.gpu_scheduler(url))
    gpu_cluster.apply(share("first", "A100"), namespace="team-a")
    gpu_cluster.wait_running("team-a", 1)

    gpu_cluster.apply(share("second", "A100"), namespace="team-a")

    message = gpu_cluster.wait_message("team-a", "second", "quota")
    assert "Namespace is over its GPU quota" in message
    gpu_cluster.apply(share("other-model", "A10,A100"), namespace="team-a")
    gpu_cluster.apply(share("other-team", "A100"), namespace="team-b")
    gpu_cluster.wait_running("team-b", 1)
    found = gpu_cluster.wait_bound("team-a", "other-model")
    assert found["spec"]["nodeName"] == "small"
    assert "nodeName" not in named(gpu_cluster, "second")["spec"]


@pytest.mark.usefixtures("quota")
def test_raised_quota_admits_the_pod_that_waited(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(mixed_node("big", A100, 4))
    gpu_cluster.schedule_with(wirings.gpu_scheduler(url))
    gpu_cluster.apply(share("first", "A100"), share("second", "A100"), namespace="team-a")
    gpu_cluster.wait_settled("team-a", 2)

    text = json.dumps({"team-a": {"quota": {"A100": 2}}})
    with gpu_cluster.plane.api() as api:
        api.patch(f"{QUOTA}/gpuquota", {"data": {"gpu_quota": text}})

    # A ConfigMap wakes no pod that waits, and the scheduler's own flush takes five minutes.
    gpu_cluster.wait_running("team-a", 2)
    touched = [marks_of(each, "slicewise.io/quota-changed") for each in gpu_cluster.pods("team-a")]
    assert sum(map(bool, touched)) == 1


def named(cluster: GpuCluster, name: str) -> dict[str, Any]:
    """One pod of team-a."""
    (found,) = cluster.pods("team-a", fieldSelector=f"metadata.name={name}")
    return found
