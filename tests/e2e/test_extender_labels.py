"""Labels of bound pods on a real API server, whether or not it copies those of a Binding."""

from collections import Counter
from collections.abc import Iterator

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, mixed_node
from slicewise_testbed.binaries import Binaries
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.settings import Settings
from slicewise_testbed.simulated_nodes import SimulatedNodes
from slicewise_testbed.testbed import Testbed
from slicewise_testbed.versions import chosen_version, minor

pytestmark = pytest.mark.cluster
LIMITS = (
    {"nvidia.com/vcuda-core": 10, "nvidia.com/vcuda-memory": 1000},
    {"elasticgpu.io/gpu-core": 10},
)
KEYS = ({"tydic.io/bind-time", "tydic.io/bind-phase"}, {"elasticgpu.io/assumed"})
COPIED = minor(chosen_version()) >= 35
PODS = 12


@pytest.fixture
def dropping_cluster(kube_binaries: Binaries) -> Iterator[GpuCluster]:
    """A cluster whose API server was told to drop the labels of Bindings."""
    gates = {"PodTopologyLabelsAdmission": False}
    with Testbed.start() as bed:
        wanted = Settings(audit="Metadata", feature_gates=gates if COPIED else {})
        plane = ControlPlane(bed, kube_binaries, wanted).start()
        yield GpuCluster(plane, SimulatedNodes(plane).start())


def place(cluster: GpuCluster) -> tuple[Counter[tuple[str, str]], list[str]]:
    """What the extender wrote to bind pods of both systems, and who was seen without labels."""
    url = cluster.start_extender()
    cluster.add_nodes(mixed_node("own", A10, 4))
    cluster.schedule_with(wirings.everything(url))
    mark, space = cluster.audit_mark(), "/api/v1/namespaces/labelled/pods"
    cluster.make_namespace("labelled")
    with cluster.plane.api() as api:
        version = api.get(space)["metadata"]["resourceVersion"]
        pods = [pod(f"p{at:02}", LIMITS[at % 2]) for at in range(PODS)]
        cluster.apply(*pods, namespace="labelled")
        cluster.wait_running("labelled", PODS)
        # The server's history from before the first pod, in the order in which everybody sees it.
        events = list(api.watch(space, 30, resourceVersion=version, timeoutSeconds="1"))
    bare = []
    for event in events:
        seen = event["object"]
        name, labels = seen["metadata"]["name"], seen["metadata"].get("labels", {})
        wanted = KEYS[int(name.removeprefix("p")) % 2]
        if seen["spec"].get("nodeName") and not wanted <= labels.keys():
            bare.append(name)
    writes = Counter(cluster.writes(mark))
    del writes["create", "events"]
    return writes, bare


def test_nobody_sees_a_bound_pod_without_its_labels(gpu_cluster: GpuCluster) -> None:
    writes, bare = place(gpu_cluster)

    assert bare == []
    expected = {("create", "pods/binding"): PODS}
    assert writes == (expected if COPIED else {**expected, ("patch", "pods"): PODS})


def test_server_that_was_told_to_drop_labels_is_found_out(dropping_cluster: GpuCluster) -> None:
    writes, bare = place(dropping_cluster)

    # Where the version promises a copy, the first pod finds out, and no other is late.
    assert len(set(bare)) <= (1 if COPIED else 0)
    labelled = dropping_cluster.pods("labelled")
    assert all(
        KEYS[at % 2] <= each["metadata"]["labels"].keys() for at, each in enumerate(labelled)
    )
    assert writes["patch", "pods"] == PODS
