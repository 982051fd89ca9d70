"""`slicewise agent` on a real node, reporting to the metrics API behind the API server."""

import signal
import time
from collections.abc import Iterator

import pytest

from e2e.agent_node import AgentNode
from e2e.metrics_server import MetricsServer
from e2e.mixture import SHARES, speak
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(agent_node: AgentNode) -> Iterator[MetricsServer]:
    server = MetricsServer(agent_node.plane)
    server.start("--enable-scheduler=false")
    yield server
    server.stop()
    with agent_node.plane.api() as api:
        api.delete("/api/v1/namespaces/kube-system/pods/agent-gpu", gracePeriodSeconds=0)


def test_agents_pod_is_told_and_its_end_is_noticed(
    agent_node: AgentNode, server: MetricsServer
) -> None:
    name, folder = agent_node.node.name, agent_node.node.folder
    (folder / "report-token").write_text(server.make_token(name))
    (folder / "report-ca.pem").write_text(server.authority())
    flags = (
        f"--report-to=https://localhost:{server.port}",
        f"--report-ca={folder / 'report-ca.pem'}",
        f"--report-token={folder / 'report-token'}",
    )
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
