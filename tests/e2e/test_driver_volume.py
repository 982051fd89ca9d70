"""A pod of gpu-manager's document on a real node with plain runc, and no toolkit of NVIDIA's."""

from pathlib import Path
from typing import Any

import pytest

from e2e.agent_node import AgentNode
from e2e.pods import in_phase
from fakes.driver_tree import VERSION, make_driver
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
SMI = ["/usr/local/nvidia/bin/nvidia-smi", "pmon", "-d", "10"]
LOOK = "ls /usr/local/nvidia/lib64; echo $LD_LIBRARY_PATH; ls /usr/local/nvidia"


def document(name: str, limits: dict[str, int], *command: str) -> dict[str, Any]:
    container = {
        "name": "nvidia",
        "image": "busybox:local",
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"requests": limits, "limits": limits},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_pod_of_the_document_ends_well_on_a_fresh_node(
    agent_node: AgentNode, tmp_path: Path
) -> None:
    host = make_driver(tmp_path / "host")
    agent_node.start_agent(f"--driver-root={host}")
    agent_node.start_extender()
    share = {"nvidia.com/vcuda-core": 50, "nvidia.com/vcuda-memory": 2048}
    pods = {
        "vcuda": document("vcuda", share, *SMI),
        "whole": document("whole", {"nvidia.com/vcuda-core": 200}, *SMI),
        "look": document("look", share, "sh", "-c", LOOK),
    }

    agent_node.cluster.apply(*pods.values(), namespace="volumes")

    ended = in_phase("Succeeded", "Failed")
    wait_until(
        lambda: all(map(ended, agent_node.cluster.pods("volumes"))),
        90,
        lambda: str([pod["status"] for pod in agent_node.cluster.pods("volumes")]),
    )
    for name in ("vcuda", "whole"):
        assert agent_node.plane.kubectl("logs", name, "-n", "volumes") == (
            "fake nvidia-smi pmon -d 10\n"
        )
    seen = agent_node.plane.kubectl("logs", "look", "-n", "volumes").split()
    assert {f"libcuda.so.{VERSION}", "libcuda.so.1", "/usr/local/nvidia/lib64", "bin"} <= set(seen)
    assert (agent_node.node.folder / "display.sock").is_socket()
