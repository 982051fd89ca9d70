"""Large GPUs whose memory is counted in MiB."""

import pytest

from e2e.agent_node import AgentNode
from e2e.mixture import RESOURCES, mixed_pods
from e2e.recorded_gpus import make_gpus

pytestmark = pytest.mark.cluster
MEMORY = 81920
IN_MIB = ("nvidia.com/vcuda-memory", "elasticgpu.io/gpu-memory", "slicewise.io/memory")


def test_eight_gpus_of_80_gib_counted_in_mib_are_registered_and_served(
    agent_node: AgentNode,
) -> None:
    agent_node.use_gpus(make_gpus((8, "NVIDIA A100-SXM4-80GB", MEMORY)))
    agent_node.start_agent()
    agent_node.wait_allocatable(*RESOURCES, *IN_MIB)
    agent_node.start_extender("--policy=spread")
    amounts = agent_node.node_object()["status"]["allocatable"]
    assert {amounts[each] for each in IN_MIB} == {str(8 * MEMORY)}

    agent_node.cluster.apply(*mixed_pods(12), namespace="large")

    pods = agent_node.wait_spoken("large", 12, 180)
    agent_node.check_given(pods)
    said = agent_node.bed.log(f"{agent_node.node.name}-kubelet").read_text(errors="replace")
    assert "received message larger than max" not in said
