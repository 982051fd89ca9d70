"""`slicewise agent` on a real node, reporting to the metrics API behind the API server."""

import signal
import time
from collections.abc import Iterator

import pytest

from e2e.agent_node import AGENT, AgentNode
from e2e.balancer import FirstOpen
from e2e.metrics_server import PREFIX, REPLICA, MetricsServer
from e2e.mixture import SHARES, speak
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(agent_node: AgentNode) -> Iterator[MetricsServer]:
    server = MetricsServer(agent_node.plane)
    server.start("--enable-scheduler=false")
    yield server
    server.remove()
    with agent_node.plane.api() as api:
        api.delete("/api/v1/namespaces/kube-system/pods/agent-gpu", gracePeriodSeconds=0)


def report_flags(agent_node: AgentNode, server: MetricsServer) -> tuple[str, ...]:
    """How the agent reaches the server and is let in."""
    folder = agent_node.node.folder
    (folder / "report-token").write_text(server.make_token(agent_node.node.name))
    (folder / "report-ca.pem").write_text(server.authority())
    return (
        f"--report-to=https://localhost:{server.port}",
        f"--report-ca={folder / 'report-ca.pem'}",
        f"--report-token={folder / 'report-token'}",
    )


def count_connections(agent_node: AgentNode) -> int:
    """How often agents of this node were taken in by a server."""
    log = agent_node.bed.log(f"{agent_node.node.name}-{AGENT}")
    lines = log.read_text(errors="replace").splitlines() if log.exists() else ()
    return sum("reporting" in each and "interrupted" not in each for each in lines)


def test_agents_pod_is_told_and_its_end_is_noticed(
    agent_node: AgentNode, server: MetricsServer
) -> None:
    name, flags = agent_node.node.name, report_flags(agent_node, server)
    agent_node.start_agent(*flags)
    agent_node.wait_allocatable(*SHARES["slicewise"])
    agent_node.start_extender()
    agent_node.cluster.apply(speak("told", SHARES["slicewise"], ["main"]))
    agent_node.wait_spoken("default", 1, 120)

    wait_until(lambda: "default/told" in server.pods(), 30, agent_node.agent_tail)
    containers = server.pods()["default/told"]["containers_device"]
    uuids = {info["device_id"] for each in containers for info in each["device_info"]}
    assert len(uuids) == 1
    assert uuids <= {gpu.uuid for gpu in agent_node.gpus}
    assert server.health() == {name: "True"}

    agent_node.stop_agent(signal.SIGKILL)
    stopped = time.monotonic()
    wait_until(lambda: server.health()[name] == "False", 20, lambda: "still well")
    assert time.monotonic() - stopped <= 4.0
    assert "default/told" in server.pods()

    agent_node.start_agent(*flags)
    wait_until(lambda: server.health()[name] == "True", 20, agent_node.agent_tail)
    wait_until(lambda: "default/told" in server.pods(), 20, agent_node.agent_tail)


def test_lost_replica_costs_its_clients_a_reconnect_and_its_agents_nothing(
    agent_node: AgentNode, server: MetricsServer
) -> None:
    name, plain = agent_node.node.name, "--enable-scheduler=false"
    other = server.start_replica(plain)
    replicas = [f"127.0.0.1:{port}" for port in (server.port, other)]
    flags = [f"--report-replicas={each}" for each in replicas]
    # The log goes on where an earlier agent's ended.
    earlier = count_connections(agent_node)
    agent_node.start_agent(*report_flags(agent_node, server), *flags)
    wait_until(lambda: count_connections(agent_node) == earlier + 2, 60, agent_node.agent_tail)
    agent_node.wait_allocatable(*SHARES["slicewise"])
    agent_node.start_extender()
    agent_node.cluster.apply(speak("kept", SHARES["slicewise"], ["main"]))
    agent_node.wait_spoken("default", 1, 120)
    with FirstOpen(replicas) as service:
        server.lead_to(service.port)
        wait_until(lambda: "default/kept" in server.pods(), 30, agent_node.agent_tail)
        before = server.pods()["default/kept"], server.get(f"{PREFIX}/gpuinfos")["items"][0]["spec"]

        server.stop(signal.SIGKILL)
        # A kept-alive connection may still lead to the dead one.
        wait_until(lambda: answers(server), 20, lambda: "the other does not answer")

        # The other's first answer is whole: it was told of everything all along.
        assert server.health() == {name: "True"}
        spec = server.get(f"{PREFIX}/gpuinfos")["items"][0]["spec"]
        assert server.pods()["default/kept"] == before[0]
        assert {**spec, "report_time": ""} == {**before[1], "report_time": ""}
        assert count_connections(agent_node) == earlier + 2

        server.start(plain)
        wait_until(lambda: count_connections(agent_node) == earlier + 3, 60, agent_node.agent_tail)
        server.plane.bed.stop(REPLICA, signal.SIGKILL)
        wait_until(lambda: answers(server), 20, lambda: "the first does not answer")
        wait_until(lambda: server.health() == {name: "True"}, 20, agent_node.agent_tail)
        assert server.pods()["default/kept"] == before[0]
    server.lead_to(server.port)


def answers(server: MetricsServer) -> bool:
    """Whether the API server gets an answer from whoever the Service leads to."""
    with server.plane.api() as api:
        return api.raw("GET", f"{PREFIX}/podresources")[0] == 200
