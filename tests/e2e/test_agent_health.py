"""A GPU that becomes unhealthy under running pods, and is healthy again."""

import pytest

from e2e.agent_node import AgentNode, containers_of
from e2e.mixture import SHARES, speak
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
LIMITS = SHARES["slicewise"]
# The GPU fell off the bus: nothing of it can be relied on.
XID = 79


def test_gpu_with_an_xid_takes_no_pod_until_it_is_well_and_no_pod_is_touched(
    agent_node: AgentNode,
) -> None:
    agent_node.start_agent("--recover-seconds=15")
    agent_node.wait_allocatable(*LIMITS)
    agent_node.start_extender("--policy=spread")
    agent_node.cluster.apply(*(speak(f"on-{at}", LIMITS, ["main"]) for at in range(8)))
    pods = agent_node.wait_spoken("default", 8, 120)
    assert agent_node.check_given(pods) == set(agent_node.gpus)
    sick = agent_node.gpus[3]
    wanting = speak("wanting", LIMITS, ["main"])
    wanting["metadata"]["annotations"] = {"slicewise.io/uuids": sick.uuid}
    assert agent_node.cluster.filter(wanting, agent_node.node.name)

    agent_node.describe(faults=[{"sequence": 1, "gpu": sick.index, "xid": XID}])
    wait_until(
        lambda: not agent_node.cluster.filter(wanting, agent_node.node.name),
        5,
        agent_node.agent_tail,
    )

    agent_node.cluster.apply(wanting)
    agent_node.cluster.wait_message("default", "wanting", "Too few healthy GPUs")
    agent_node.cluster.apply(speak("elsewhere", LIMITS, ["main"]))
    agent_node.wait_running("default", 9, 60)
    agent_node.describe(faults=[])
    after = agent_node.wait_spoken("default", 10, 120)
    untouched = [each for pod in pods for each in containers_of(pod)]
    assert set(untouched) <= {each for pod in after for each in containers_of(pod)}
    agent_node.check_given(after)
