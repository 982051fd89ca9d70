"""What goes wrong around an agent holds up one container, says so, and touches no other."""

import json

import pytest

from e2e.agent_node import AgentNode, containers_of
from e2e.mixture import SHARES, speak

pytestmark = pytest.mark.cluster
LIMITS = SHARES["slicewise"]


@pytest.fixture
def served(agent_node: AgentNode) -> AgentNode:
    """The node with an agent, an extender and one pod that runs."""
    agent_node.start_agent()
    agent_node.wait_allocatable(*LIMITS)
    agent_node.start_extender("--policy=spread")
    agent_node.cluster.apply(speak("first", LIMITS), namespace="faults")
    agent_node.wait_spoken("faults", 1, 120)
    return agent_node


def test_full_disk_holds_up_a_start_until_there_is_room(served: AgentNode) -> None:
    served.node.run_inside("mount", "-t", "tmpfs", "-o", "size=8k", "full", "/run/cdi")
    try:
        served.node.run_inside("sh", "-c", "! head -c 64k /dev/zero > /run/cdi/ballast")
        served.cluster.apply(speak("held", LIMITS), namespace="faults")
        said = served.wait_event("faults", "held", "No space left on device")
        assert "free space or repair the node's disk" in said
        assert served.agent_ready()
    finally:
        served.node.run_inside("umount", "/run/cdi")

    pods = served.wait_spoken("faults", 2, 120)
    served.check_given(pods)


def test_broken_spec_is_written_anew_when_its_container_starts_again(served: AgentNode) -> None:
    (pod,) = served.cluster.pods("faults")
    before = containers_of(pod)
    served.stop_agent()
    for path in served.node.cdi.glob("slicewise-*"):
        path.write_bytes(path.read_bytes()[:100])
    (served.node.cdi / "slicewise-0123456789abcdef0123.json").write_text("{")

    served.start_agent()
    served.cluster.apply(speak("second", LIMITS), namespace="faults")
    pods = served.wait_spoken("faults", 2, 120)
    assert containers_of(next(p for p in pods if p["metadata"]["name"] == "first")) == before
    served.restart_container("faults", "first", "one")

    served.check_given(served.cluster.pods("faults"))


def test_driver_that_dies_touches_no_pod_and_pods_start_without_it(served: AgentNode) -> None:
    before = containers_of(served.cluster.pods("faults")[0])

    served.describe(unavailable=True)
    served.wait_log("GPUs unknown")
    served.cluster.apply(speak("second", LIMITS), namespace="faults")

    pods = served.wait_spoken("faults", 2, 120)
    assert before in [containers_of(pod) for pod in pods]
    served.check_given(pods)


def test_record_that_nobody_signed_holds_up_its_pod_alone_and_says_why(served: AgentNode) -> None:
    record = {"containers": {"one": [[0, "GPU-of-nobody", 5, 256]]}, "node": served.node.name}
    forged = speak("forged", LIMITS, ["one"])
    forged["metadata"]["annotations"] = {"slicewise.io/allocation": json.dumps(record)}
    forged["spec"]["nodeName"] = served.node.name
    served.cluster.apply(forged, speak("second", LIMITS), namespace="faults")

    assert "slicewise.io/signature" in served.wait_event("faults", "forged", "is not signed")
    served.wait_running("faults", 2, 120)
    waiting = {
        pod["metadata"]["name"]: pod["status"]["phase"] for pod in served.cluster.pods("faults")
    }
    assert waiting == {"first": "Running", "second": "Running", "forged": "Pending"}
