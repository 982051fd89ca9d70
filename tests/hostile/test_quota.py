"""A tenant tries to hold more than its quota, and an administrator breaks it."""

import json
import signal
from collections.abc import Callable, Iterator

import pytest

from e2e import wirings
from hostile.tenancy import GPU_MEMORY, Pod, Tenancy, make_pod, share, whole
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
OVER = "Namespace is over its GPU quota"
SetQuota = Callable[[str], None]


@pytest.fixture
def set_quota(tenancy: Tenancy) -> Iterator[SetQuota]:
    """Writes what the quota's ConfigMap says; it is gone afterwards."""

    def write(text: str) -> None:
        body = {"metadata": {"name": "gpuquota"}, "data": {"gpu_quota": text}}
        with tenancy.plane.api() as api:
            api.create(CONFIGMAPS, body)

    yield write
    with tenancy.plane.api() as api:
        api.delete(f"{CONFIGMAPS}/gpuquota")


@pytest.fixture
def one_gpu(tenancy: Tenancy, set_quota: SetQuota) -> Tenancy:
    """The cluster once its extender knows that the tenant may hold one GPU."""
    set_quota(json.dumps({"mallory": {"quota": {"A10": 1}}}))
    two = whole("asked", 2)
    two["metadata"] |= {"namespace": "mallory", "uid": "asked"}
    node = tenancy.node.node.name
    wait_until(lambda: not tenancy.cluster.filter(two, node), 20, lambda: "no quota is known")
    return tenancy


def started(tenancy: Tenancy) -> list[str]:
    """The tenant's pods whose container has a GPU."""
    names = [pod["metadata"]["name"] for pod in tenancy.tenant.pods()]
    return [name for name in names if any(tenancy.devices(tenancy.tenant, name))]


def test_little_compute_with_all_memory_counts_as_the_gpu_it_fills(one_gpu: Tenancy) -> None:
    one_gpu.run(one_gpu.tenant, share("first", 1, GPU_MEMORY))

    one_gpu.tenant.create(share("second", 1, GPU_MEMORY))

    assert OVER in one_gpu.cluster.wait_message("mallory", "second", "quota")
    assert started(one_gpu) == ["first"]


def test_pod_bound_by_hand_counts_against_the_quota(one_gpu: Tenancy) -> None:
    by_hand = make_pod("by-hand", {"nvidia.com/gpu": 1}, nodeName=one_gpu.node.node.name)
    one_gpu.run(one_gpu.tenant, by_hand)

    one_gpu.tenant.create(whole("second"))

    assert OVER in one_gpu.cluster.wait_message("mallory", "second", "quota")
    assert started(one_gpu) == ["by-hand"]


def test_pods_bound_by_hand_beyond_the_quota_get_no_gpu(one_gpu: Tenancy) -> None:
    node = one_gpu.node.node.name
    names = [f"by-hand-{at}" for at in range(3)]
    pods = [make_pod(name, {"nvidia.com/gpu": 1}, nodeName=node) for name in names]
    one_gpu.tenant.create(*pods)

    wait_until(lambda: started(one_gpu), 60, lambda: "none has started")
    # Whoever could have had these GPUs still can.
    one_gpu.run(one_gpu.victim, whole("rest", 3))
    assert len(started(one_gpu)) == 1


def test_burst_of_whole_gpus_stays_within_a_quota_of_one(one_gpu: Tenancy) -> None:
    one_gpu.schedule_with(wirings.gpuscheduler)
    try:
        pods = [make_pod(f"burst-{at}", {"nvidia.com/gpu": 1}) for at in range(4)]
        one_gpu.tenant.create(*pods)
        wait_until(lambda: len(decided(one_gpu)) == 4, 60, lambda: f"{decided(one_gpu)}")
        bound = [pod for pod in one_gpu.tenant.pods() if pod["spec"].get("nodeName")]
    finally:
        one_gpu.schedule_with(wirings.everything)

    assert len(bound) == 1


def test_quota_that_cannot_be_read_at_the_start_admits_nobody(
    tenancy: Tenancy, set_quota: SetQuota
) -> None:
    tenancy.cluster.stop_extender(signal.SIGKILL)
    set_quota("{not JSON")
    tenancy.node.start_extender()

    tenancy.tenant.create(whole("whole"))

    assert "quota" in tenancy.cluster.wait_message("mallory", "whole", "quota")
    good = {"data": {"gpu_quota": json.dumps({"mallory": {"quota": {"A10": 1}}})}}
    with tenancy.plane.api() as api:
        api.patch(f"{CONFIGMAPS}/gpuquota", good)
    tenancy.tenant.wait("whole", lambda pod: pod["spec"].get("nodeName"))


def decided(tenancy: Tenancy) -> list[Pod]:
    """The tenant's pods that have a node, or were told that they get none."""
    return [
        pod
        for pod in tenancy.tenant.pods()
        if any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
    ]
