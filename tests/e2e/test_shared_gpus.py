"""Claims and pods by resource names on the same GPUs: who comes second waits, and is told why."""

import signal

import pytest

from e2e.agent_node import AgentNode
from e2e.claim_node import CLAIMS, ClaimNode, claiming, share, speaking, template
from e2e.recorded_gpus import make_gpus
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.since(36)]
MEMORY = 24576
ALONE = ("--dra", "--no-leader-elect")


@pytest.fixture(scope="module")
def two_gpus(kube_binaries):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings()).start()
        yield AgentNode(plane, WITH_CDI, make_gpus((2, "NVIDIA A10", MEMORY)))


@pytest.fixture
def shared(two_gpus):
    made = ClaimNode(two_gpus, "shared")
    two_gpus.start_extender(*ALONE)
    yield made
    made.clear()


def by_name(name, cores, memory=4096):
    return speaking(name, {"slicewise.io/cores": cores, "slicewise.io/memory": memory})


def held(shared):
    """Percent and MiB of each GPU, by the extender's ledger."""
    return shared.cluster.gpus()[shared.node.node.name]


def test_claim_and_pod_share_one_gpu_and_each_finds_exactly_its_part(shared):
    shared.apply(by_name("first", 60), by_name("second", 60))
    shared.node.wait_running(CLAIMS, 2, 60)
    wait_until(lambda: [cores for cores, _ in held(shared)] == [60, 60], 20, lambda: held(shared))

    results, report = shared.run("beside", share(40, "4Gi"))

    assert shared.check(results, report) == [(40, 4096)]
    assert sorted(cores for cores, _ in held(shared)) == [60, 100]
    shared.apply(template("large", share(60, "4Gi")), claiming("large", "large"))
    shared.cluster.wait_message(CLAIMS, "large", "cannot allocate all claims")
    told = shared.ask("why", f"{CLAIMS}/large", code=1)
    assert "request gpu asks for 60 percent and 4096 MiB of a GPU" in told
    assert sorted(line.strip() for line in told.splitlines() if "lacks" in line) in (
        ["gpu 0: lacks 20 percent", "gpu 1: lacks 60 percent"],
        ["gpu 0: lacks 60 percent", "gpu 1: lacks 20 percent"],
    )
    assert f"{CLAIMS}/beside (claim beside-" in shared.ask("top")
    shared.delete("first")
    shared.delete("beside")
    assert shared.check(*shared.wait("large")) == [(60, 4096)]


def wait_held(shared, cores):
    wait_until(lambda: sum(c for c, _ in held(shared)) == cores, 30, lambda: held(shared))


def test_claim_allocated_from_an_old_slice_is_refused_with_numbers_and_then_placed(shared):
    shared.run("here", share(10, "1Gi"))
    # The agent tells nobody of the pods that come now.
    shared.signal_agent("STOP")
    # The first fills the GPU of the claim, and the second is put onto the other GPU.
    for name, cores, sum_of_all in (("quick", 90, 100), ("other", 30, 130)):
        shared.apply(by_name(name, cores))
        wait_held(shared, sum_of_all)
    shared.apply(template("late", share(50, "1Gi")), claiming("late", "late"))

    message = shared.node.wait_event(CLAIMS, "late", "device binding failed")
    shared.signal_agent("CONT")

    assert "needs 50 percent, free is" in message
    assert shared.check(*shared.wait("late", 90)) == [(50, 1024)]


def test_whole_gpu_by_name_and_whole_gpu_by_claim_take_one_each(shared):
    shared.apply(template("whole", share()), claiming("whole", "whole"))
    shared.wait("whole", 150)
    for at in range(2):
        shared.apply(speaking(f"gpu-{at}", {"nvidia.com/gpu": 1}))
    shared.node.wait_running(CLAIMS, 2, 60)

    assert held(shared) == [(100, MEMORY)] * 2
    shared.delete("whole")
    shared.node.wait_running(CLAIMS, 2, 60)


def test_leader_that_comes_back_counts_what_was_granted(shared):
    shared.run("kept", share(70, "4Gi"))
    shared.cluster.stop_extender(signal.SIGKILL)
    shared.cluster.start_extender(*ALONE)

    assert sorted(held(shared)) == [(0, 0), (70, 4096)]


def test_quota_counts_claims_and_refuses_with_the_numbers(shared):
    quota = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuquota"},
        "data": {"gpu_quota": '{"claims": {"quota": {"A10": 1}}}'},
    }
    shared.cluster.apply(quota, namespace="kube-system")
    try:
        shared.run("most", share(80, "4Gi"))
        shared.apply(template("more", share(30, "4Gi")), claiming("more", "more"))

        message = shared.node.wait_event(CLAIMS, "more", "over its GPU quota")

        assert "holds 80 of 100 percent of A10, needs 30 more" in message
    finally:
        shared.node.plane.kubectl("delete", "configmap", "gpuquota", "-n", "kube-system")
