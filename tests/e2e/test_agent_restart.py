"""An agent that is killed and started again under running containers."""

import json
import signal
from typing import Any

import pytest

from e2e.agent_node import AgentNode, containers_of
from e2e.mixture import RESOURCES, mixed_pods
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
PODS = 25
BYTES = 64 << 20


def test_restarts_leave_containers_series_and_allocations_as_they_were(
    agent_node: AgentNode,
) -> None:
    agent_node.start_agent()
    agent_node.wait_allocatable(*RESOURCES)
    agent_node.start_extender("--policy=spread")
    agent_node.cluster.apply(*mixed_pods(PODS), namespace="fifty")
    pods = agent_node.wait_spoken("fifty", PODS, 240)
    agent_node.occupy(pods, memory=64)
    wait_until(lambda: len(busy(agent_node)) == 2 * PODS, 30, lambda: agent_node.ask("/metrics"))
    before = facts(agent_node)

    agent_node.stop_agent(signal.SIGKILL)
    agent_node.start_agent()

    # The first answer of the new agent has every series, each with the value it had.
    assert series(agent_node) == before["series"]
    agent_node.restart_kubelet()
    agent_node.wait_allocatable(*RESOURCES)
    assert facts(agent_node) == before
    assert "slicewise_gpu_stray_processes{" not in agent_node.ask("/metrics")


def series(node: AgentNode) -> set[str]:
    """Every series of every container with its value, under all names."""
    lines = node.ask("/metrics").splitlines()
    names = ("slicewise_container_", "container_", "pod_")
    return {line for line in lines if line.startswith(names)}


def busy(node: AgentNode) -> list[str]:
    """The containers' series that tell of the memory in use."""
    name = "slicewise_container_gpu_memory_used_bytes{"
    return [line for line in series(node) if line.startswith(name) and _value(line) == BYTES]


def facts(node: AgentNode) -> dict[str, Any]:
    """All that a restart must leave alone."""
    pods = node.cluster.pods("fifty")
    held = json.loads((node.node.device_plugins / "kubelet_internal_checkpoint").read_text())
    entries = held["Data"]["PodDeviceEntries"]
    return {
        "series": series(node),
        "containers": {pod["metadata"]["name"]: containers_of(pod) for pod in pods},
        "annotations": {pod["metadata"]["name"]: pod["metadata"]["annotations"] for pod in pods},
        "held": sorted(json.dumps(entry, sort_keys=True) for entry in entries),
        "specs": {path.name: path.read_bytes() for path in node.node.cdi.glob("slicewise-*")},
    }


def _value(line: str) -> float:
    return float(line.rpartition(" ")[2])
