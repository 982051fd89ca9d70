"""Native sidecars and init containers on a real node whose kubelet has a group for each pod."""

from collections.abc import Mapping
from typing import Any

import pytest

from e2e.agent_node import AgentNode
from e2e.gpu_cluster import pod
from e2e.reports import COMMAND, SCRIPT, Report, gpu_devices, read_reports

pytestmark = pytest.mark.cluster
RESOURCES = ("slicewise.io/cores", "slicewise.io/memory")


def container(name: str, cores: int, *, cpu: str, **fields: Any) -> dict[str, Any]:
    """A container that says what it was given, with a limit of CPU beside its share."""
    limits = {
        "cpu": cpu,
        "memory": "64Mi",
        RESOURCES[0]: str(cores),
        RESOURCES[1]: str(cores * 100),
    }
    shared = {"name": name, "image": "busybox:local", "command": COMMAND}
    return {**shared, "resources": {"limits": limits}, **fields}


def start(node: AgentNode) -> None:
    node.start_agent()
    node.wait_allocatable(*RESOURCES)
    node.start_extender()


def only_report(node: AgentNode, found: Mapping[str, Any], name: str) -> Report:
    """What a container of any kind said at its one start."""
    spec = found["spec"]
    everyone = [*spec.get("initContainers", ()), *spec["containers"]]
    whole = {**found, "spec": {**spec, "containers": everyone}}
    (report,) = read_reports(node.node.folder / "log", whole)[name]
    return report


def test_sidecar_and_a_larger_init_container_get_their_own_shares(agent_node: AgentNode) -> None:
    start(agent_node)
    sidecar = container("proxy", 10, cpu="50m", restartPolicy="Always")
    larger = container("prepare", 50, cpu="200m", command=["sh", "-c", SCRIPT])
    fields = {
        "initContainers": [sidecar, larger],
        "containers": [container("main", 20, cpu="100m")],
    }
    agent_node.cluster.apply(pod("trainer", **fields), namespace="sidecars")

    (found,) = agent_node.wait_spoken("sidecars", 1, 90)

    granted = agent_node.allocations([found])["trainer"]
    for name, cores in (("proxy", 10), ("prepare", 50), ("main", 20)):
        report = only_report(agent_node, found, name)
        assert report.variables["SLICEWISE_GPU_CORES"] == str(cores)
        assert report.variables["NVIDIA_VISIBLE_DEVICES"] == granted[name][0].uuid
        assert f"/dev/{granted[name][0].device}" in gpu_devices(report)
    statuses = found["status"]["initContainerStatuses"]
    assert [(each["name"], each["started"]) for each in statuses] == [
        ("proxy", True),
        ("prepare", False),
    ]
    # The sidecar runs beside the larger init container, which is the phase that costs most.
    charged = [used for used in agent_node.cluster.gpus()[agent_node.node.name] if used != (0, 0)]
    assert sum(cores for cores, _ in charged) == 60


def test_held_back_pod_with_limits_leaves_the_kubelet_alive(agent_node: AgentNode) -> None:
    start(agent_node)
    kubelet = f"{agent_node.node.name}-kubelet"
    sidecar = container("proxy", 10, cpu="50m", restartPolicy="Always")
    unsigned = pod(
        "unsigned",
        nodeName=agent_node.node.name,
        initContainers=[sidecar],
        containers=[container("main", 20, cpu="100m")],
    )
    agent_node.cluster.apply(unsigned, namespace="held")
    agent_node.wait_event("held", "unsigned", "record")
    signed = pod("signed", containers=[container("main", 20, cpu="100m")])
    agent_node.cluster.apply(signed, namespace="beside")

    agent_node.wait_spoken("beside", 1, 90)

    assert agent_node.bed.alive(kubelet)
    assert "panic" not in agent_node.bed.log(kubelet).read_text(errors="replace")
    (waiting,) = agent_node.cluster.pods("held")
    assert waiting["status"]["phase"] == "Pending"
