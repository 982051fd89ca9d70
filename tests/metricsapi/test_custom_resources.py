"""What replicas read from custom resources and leases, and what the leader writes into them."""

import asyncio

import msgspec
import pytest

from fakes.custom_server import NODES, CustomServer
from metricsapi.scene import Scene
from slicewise.kube.custom.node_leases import SeenLease
from slicewise.kube.custom.objects import CustomBody, gpu_nodes
from slicewise.kube.errors import RefusedError
from slicewise.kube.watch import Gone, Seen
from slicewise.metricsapi.custom_resources import (
    CONTROLLER,
    CustomResourceReader,
    StatusWriter,
)
from slicewise.metricsapi.registry import AgentHealth
from slicewise.reports import ContainerReport, DeviceReport, GpuReport, NodeReport, PodReport
from slicewise.reports.gpu_documents import write_node_spec, write_pod_spec

GPU = GpuReport(uuid="GPU-0", model="Tesla T4", bus="0000:3B:00.0", brand=2)
POD = PodReport(
    namespace="ml",
    name="a",
    containers=(ContainerReport(name="main", devices=(DeviceReport(gpu="GPU-0"),)),),
)
REPORT = NodeReport(node="n0", gpus=(GPU,), pods=(POD,))


def body(name, spec, **status):
    document = {"metadata": {"name": name}, "spec": msgspec.to_builtins(spec), "status": status}
    return msgspec.convert(document, CustomBody)


class Cluster:
    """A registry with its reader, and objects that come one by one."""

    def __init__(self):
        self.scene = Scene()
        self.registry = self.scene.registry
        self.reader = CustomResourceReader(self.registry)

    def see_node(self, report=REPORT):
        self.reader.take_nodes([Seen(body(report.node, write_node_spec(report, None)))])

    def see_pod(self, pod=POD, report=REPORT):
        self.reader.take_pods([Seen(body(pod.name, write_pod_spec(pod, report)))])

    def renew(self, moment, node="n0"):
        self.reader.take_leases([Seen(SeenLease(node, moment))])

    def health(self, seconds=0.0):
        self.scene.seconds += seconds
        self.registry.sweep()
        return self.registry.records["n0"].health


def test_node_and_pods_are_known_in_whatever_order_they_are_seen():
    cluster = Cluster()

    cluster.see_pod()
    cluster.see_node()

    assert cluster.registry.report("n0") == REPORT
    assert [held.pod.key for held in cluster.registry.pods()] == ["ml/a"]


def test_deleted_pod_and_deleted_node_are_forgotten():
    cluster = Cluster()
    cluster.see_node()
    cluster.see_pod()

    cluster.reader.take_pods([Gone("a", 1)])
    assert list(cluster.registry.pods()) == []
    cluster.reader.take_nodes([Gone("n0", 1)])

    assert cluster.registry.records == {}


def test_connected_agent_is_taken_at_its_word_and_keeps_what_only_it_knows():
    cluster = Cluster()
    told = NodeReport(node="n0", gpus=(msgspec.structs.replace(GPU, memory_mib=15109, index=3),))
    session = cluster.scene.tell(told)
    cluster.see_node()
    cluster.see_pod()
    assert cluster.registry.report("n0") is told

    session.end()
    cluster.see_pod()

    report = cluster.registry.report("n0")
    assert report.gpus == told.gpus
    assert report.pods == (POD,)


def test_node_is_healthy_while_its_lease_is_renewed_and_four_seconds_longer():
    cluster = Cluster()
    cluster.see_node()

    cluster.renew("1")
    assert cluster.health() is AgentHealth.UNKNOWN
    cluster.renew("2")
    assert cluster.health(3.9) is AgentHealth.HEARD
    cluster.renew("2")
    assert cluster.health(0.2) is AgentHealth.SILENT
    cluster.renew("3")
    assert cluster.health() is AgentHealth.HEARD


def test_lease_that_is_never_renewed_makes_its_node_silent():
    cluster = Cluster()
    cluster.see_node()
    cluster.renew("long ago")

    assert cluster.health(4.1) is AgentHealth.SILENT
    assert cluster.registry.last_heard(cluster.registry.records["n0"]) is None


def test_controllers_own_lease_is_no_node():
    cluster = Cluster()

    cluster.renew("1", CONTROLLER)
    cluster.renew("2", CONTROLLER)

    assert cluster.registry.records == {}


def test_object_of_another_form_is_named_and_does_no_harm(caplog):
    cluster = Cluster()
    odd = msgspec.convert({"metadata": {"name": "n0"}, "spec": {"device_busy": 7}}, CustomBody)

    cluster.reader.take_nodes([Seen(odd)])

    assert "object not understood" in caplog.text
    assert cluster.registry.report("n0").gpus == ()


class Leader:
    """A status writer over a server that has the node's object."""

    def __init__(self, cluster, *, leads=True):
        self.server = CustomServer()
        self.server.objects[f"{NODES}/n0"] = {"metadata": {"name": "n0"}, "spec": {}}
        objects = gpu_nodes(self.server, "kube-system", manager="test")
        self.writer = StatusWriter(
            cluster.reader, cluster.registry, objects, lambda: leads, self._once
        )

    async def _once(self, _):
        raise asyncio.CancelledError

    def look(self):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(self.writer.run())
        return self.server.objects[f"{NODES}/n0"].get("status")


def test_leader_writes_health_when_it_changes_and_not_again():
    cluster = Cluster()
    cluster.see_node()
    leader = Leader(cluster)
    cluster.renew("1")
    assert leader.look() is None

    cluster.renew("2")
    assert leader.look() == {
        "node": "n0",
        "health": "True",
        "message": "the agent is heard",
        "last_health_time": leader.server.objects[f"{NODES}/n0"]["status"]["last_health_time"],
        "last_transition_time": "2026-01-05T10:00:00Z",
    }
    cluster.renew("3")
    leader.look()
    assert len(leader.server.writes) == 1
    cluster.health(5)

    assert leader.look()["health"] == "False"
    assert leader.look()["message"] == "the agent has fallen silent"
    assert len(leader.server.writes) == 2


def test_replica_that_does_not_lead_writes_nothing():
    cluster = Cluster()
    cluster.see_node()
    cluster.renew("1")
    cluster.renew("2")

    assert Leader(cluster, leads=False).look() is None


def test_refused_status_is_logged_once_and_tried_again(caplog):
    cluster = Cluster()
    cluster.see_node()
    cluster.renew("1")
    cluster.renew("2")
    leader = Leader(cluster)
    leader.server.refusal = RefusedError(403, "Forbidden", "gpunodes/status")
    leader.look()
    leader.look()
    assert caplog.text.count("health not written") == 1
    leader.server.refusal = None

    assert leader.look()["health"] == "True"
