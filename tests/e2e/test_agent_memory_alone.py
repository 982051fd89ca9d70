"""Memory asked for alone on a large node, and gpushare's pods on one GPU and in MiB."""

from collections.abc import Iterator

import pytest

from e2e.agent_node import AgentNode
from e2e.mixture import speak
from e2e.recorded_gpus import make_gpus
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = pytest.mark.cluster
CARRIER = "slicewise.io/carrier"
ALONE = {
    "elastic": {"elasticgpu.io/gpu-memory": 256},
    "slicewise": {"slicewise.io/memory": 256},
}


def test_large_node_gives_memory_alone_through_the_carrier(agent_node: AgentNode) -> None:
    agent_node.use_gpus(make_gpus((8, "NVIDIA A100-SXM4-80GB", 81920)))
    agent_node.start_agent()
    agent_node.wait_allocatable(CARRIER, "elasticgpu.io/gpu-memory", "slicewise.io/memory")
    agent_node.start_extender()
    carried = [speak(f"{name}-0", {**limits, CARRIER: 1}) for name, limits in ALONE.items()]

    agent_node.cluster.apply(*carried, namespace="carried")
    agent_node.cluster.apply(speak("slicewise-1", ALONE["slicewise"]), namespace="bare")

    pods = agent_node.wait_spoken("carried", len(carried), 120)
    assert agent_node.check_given(pods)
    said = agent_node.cluster.wait_message("bare", "slicewise-1", "no GPU for this resource alone")
    assert "0/1 nodes are available" in said


def test_pod_that_no_extender_saw_starts_on_the_only_gpu_if_there_is_room(
    agent_node: AgentNode,
) -> None:
    agent_node.use_gpus(make_gpus((1, "NVIDIA A10", 24576)))
    agent_node.start_agent("--dialects=slicewise,gpushare")
    agent_node.wait_allocatable("aliyun.com/gpu-mem")
    agent_node.start_extender()
    first, second = (
        speak(name, {"aliyun.com/gpu-mem": units}, ["one"])
        for name, units in (("gpushare-0", 14), ("gpushare-1", 10))
    )
    # A pod of another system, which the kubelet does not count in gpushare's units.
    third = speak("slicewise-0", {"slicewise.io/cores": 5, "slicewise.io/memory": 4096}, ["one"])
    agent_node.cluster.apply(third, namespace="seen")
    agent_node.wait_spoken("seen", 1, 90)
    for pod in (first, second):
        pod["spec"]["nodeName"] = agent_node.node.name

    agent_node.cluster.apply(first, namespace="unseen")
    agent_node.wait_spoken("unseen", 1, 90)
    agent_node.cluster.apply(second, namespace="unseen")

    def told() -> bool:
        return "GpuNotAssigned" in agent_node.plane.kubectl("get", "events", "-n", "unseen")

    wait_until(told, 40, agent_node.agent_tail)
    pods = {each["metadata"]["name"]: each for each in agent_node.cluster.pods("unseen")}
    marks = pods["gpushare-0"]["metadata"]["annotations"]
    assert (marks["ALIYUN_COM_GPU_MEM_IDX"], marks["ALIYUN_COM_GPU_MEM_POD"]) == ("0", "14")
    assert "slicewise.io/signature" in marks
    assert pods["gpushare-1"]["status"]["phase"] == "Pending"


@pytest.fixture
def small_node(kube_binaries: Binaries) -> Iterator[AgentNode]:
    """A node of its own: a kubelet never forgets which resources a device plugin once served."""
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings(audit="Request")).start()
        yield AgentNode(plane, WITH_CDI, make_gpus((2, "Tesla T4", 7680)))


def test_gpushare_in_mib_is_placed_and_served_in_mib(small_node: AgentNode) -> None:
    agent_node = small_node
    agent_node.start_agent("--memory-unit=MiB", "--dialects=slicewise,gpushare")
    agent_node.wait_allocatable("aliyun.com/gpu-mem")
    agent_node.start_extender()
    limits = {"aliyun.com/gpu-mem": 4096}

    agent_node.cluster.apply(
        *(speak(f"gpushare-{at}", limits, ["one"]) for at in range(2)), namespace="mib"
    )

    pods = agent_node.wait_spoken("mib", 2, 90)
    marks = [each["metadata"]["annotations"] for each in pods]
    assert sorted(each["ALIYUN_COM_GPU_MEM_IDX"] for each in marks) == ["0", "1"]
    assert {each["ALIYUN_COM_GPU_MEM_POD"] for each in marks} == {"4096"}
    variables = [agent_node.reports(each)["one"][0].variables for each in pods]
    assert {each["ALIYUN_COM_GPU_MEM_DEV"] for each in variables} == {"7680"}
    assert sum(used for _, used in agent_node.cluster.gpus()[agent_node.node.name]) == 8192
