"""Sixty pods at once, of two containers with equal requests each: every container has its GPUs."""

import signal

import pytest

from e2e.agent_node import AgentNode
from e2e.mixture import RESOURCES, WHOLE, mixed_pods, system_of

pytestmark = pytest.mark.cluster
PODS = 60
SECONDS = 300
FLAGGED = {"fork", "tkestack", "gpushare"}


def start_burst(node: AgentNode) -> None:
    """Agent, extender and scheduler run, and all pods are created."""
    node.start_agent()
    node.wait_allocatable(*RESOURCES)
    # Neighbours get different GPUs, so that one's GPU in another's hands shows.
    node.start_extender("--policy=spread")
    node.cluster.apply(*mixed_pods(1, WHOLE), *mixed_pods(PODS - 1), namespace="burst")


def test_every_container_of_a_burst_has_exactly_its_own_gpus(agent_node: AgentNode) -> None:
    start_burst(agent_node)

    pods = agent_node.wait_spoken("burst", PODS, SECONDS)

    # A burst that lay on one GPU would prove little.
    assert agent_node.check_given(pods) == set(agent_node.gpus)
    assert agent_node.identity() == "cdi"
    # One write for a system that looks for a flag, and nothing at all for the others.
    assert set(agent_node.pod_requests(pods).values()) == {1}
    assert {system_of(name) for name in agent_node.pod_requests(pods)} == FLAGGED


def test_agent_and_kubelet_die_in_a_burst_and_every_container_has_exactly_its_own_gpus(
    agent_node: AgentNode,
) -> None:
    start_burst(agent_node)
    # A kubelet fails whatever it takes in while a plugin is away; these pods are in, and starting.
    agent_node.wait_admitted("burst", PODS)
    agent_node.stop_agent(signal.SIGKILL)
    assert agent_node.count_started("burst") < 2 * PODS
    agent_node.start_agent()
    agent_node.restart_kubelet()

    pods = agent_node.wait_spoken("burst", PODS, SECONDS)

    assert agent_node.check_given(pods) == set(agent_node.gpus)


def test_no_container_of_a_burst_ever_has_another_ones_gpu_where_the_runtime_has_no_cdi(
    plain_node: AgentNode,
) -> None:
    start_burst(plain_node)

    pods = plain_node.wait_spoken("burst", PODS, SECONDS)

    assert plain_node.check_given(pods) == set(plain_node.gpus)
    assert plain_node.identity() == "match"
