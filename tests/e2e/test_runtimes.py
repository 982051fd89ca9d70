"""Real nodes of both runtimes, one after the other in one cluster."""

from collections.abc import Iterator

import pytest

from e2e.device_plugin import RESOURCE, LatePlugin
from e2e.pods import PODS, in_phase, pod
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.real_nodes import RealNodes
from slicewise_testbed.runtimes import WITH_CDI, WITHOUT_CDI, Runtime
from slicewise_testbed.settings import NodeSettings
from slicewise_testbed.testbed import Testbed

pytestmark = pytest.mark.cluster
ENDED = in_phase("Succeeded", "Failed")


@pytest.fixture(scope="module")
def plane(kube_binaries: Binaries) -> Iterator[ControlPlane]:
    with Testbed.start() as bed:
        yield ControlPlane(bed, kube_binaries).start()


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane) -> RealNodes:
    return RealNodes(plane)


@pytest.mark.parametrize(
    ("runtime", "version", "given"),
    [(WITHOUT_CDI, "containerd://1.", "nothing"), (WITH_CDI, "containerd://2.", "decided")],
    ids=["without-cdi", "with-cdi"],
)
def test_pod_runs_on_a_node_and_sees_cdi_edits_only_where_the_runtime_has_cdi(
    plane: ControlPlane, nodes: RealNodes, runtime: Runtime, version: str, given: str
) -> None:
    (node,) = nodes.add(runtime.name, settings=NodeSettings(runtime, kubelet={"maxPods": 7}))
    plugin = LatePlugin(node.device_plugins, node.cdi, devices=1)
    plugin.register()
    place = {"kubernetes.io/hostname": node.name}
    command = ["sh", "-c", "echo ${LATE:-nothing}"]
    name = f"on-{runtime.name}"
    try:
        with plane.api() as api:
            path = f"/api/v1/nodes/{node.name}"
            api.wait_for(path, lambda n: n["status"]["allocatable"].get(RESOURCE) == "1", 30)
            limits = {RESOURCE: "1"}
            api.create(PODS, pod(name, command=command, limits=limits, nodeSelector=place))
            ended = api.wait_for(f"{PODS}/{name}", ENDED, 90)
            status = api.get(path)["status"]
    finally:
        plugin.close()

    assert ended["status"]["phase"] == "Succeeded"
    assert plane.kubectl("logs", name).startswith(given)
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith(version)
    assert status["capacity"]["pods"] == "7"
