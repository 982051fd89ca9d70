"""The objects of one node, written as gpuserver-ds of v0.2.0 writes them, but once."""

import asyncio
from datetime import UTC, datetime

import pytest

from fakes.custom_server import LEASES, NODES, PODS, CustomServer
from slicewise.kube.errors import RefusedError
from slicewise.nodeagent.compat.custom_resources import CustomResourceWriter, WriterClock
from slicewise.reports import ContainerReport, DeviceReport, GpuReport, NodeReport, PodReport

GPU = GpuReport(uuid="GPU-0", model=" Tesla T4 ", bus="0000:3B:00.0", brand=2)
NOW = datetime(2026, 1, 5, 10, 0, 0, 250000, tzinfo=UTC)


def pod(name, gpu="GPU-0"):
    held = ContainerReport(name="main", devices=(DeviceReport(gpu=gpu),))
    return PodReport(namespace="ml", name=name, uid="u", containers=(held,))


def report(*pods, gpus=(GPU,)):
    return NodeReport(node="n0", gpus=gpus, pods=pods)


class Scene:
    """A writer whose clock is moved by hand."""

    def __init__(self):
        self.server = CustomServer()
        self.seconds = 0.0
        time = WriterClock(lambda: self.seconds, lambda: NOW)
        self.writer = CustomResourceWriter(self.server, "n0", "kube-system", time=time)

    def write(self, *reports):
        async def act():
            for each in reports:
                await self.writer.write(each)

        asyncio.run(act())

    def written(self):
        found, self.server.writes = self.server.writes, []
        return found

    def named(self, folder):
        return {
            path.rpartition("/")[2]: each
            for path, each in self.server.objects.items()
            if path.startswith(f"{folder}/")
        }


def test_node_has_the_contracts_fields_and_ends_with_its_node():
    scene = Scene()

    scene.write(report(pod("a")))

    (found,) = scene.named(NODES).values()
    info = {
        "device_id": "GPU-0", "device_brand": "BRAND_TESLA", "device_model": " Tesla T4 ",
        "device_busid": "0000:3B:00.0", "device_node": "n0",
    }  # fmt: skip
    assert found["kind"] == "GpuNode"
    assert found["spec"] == {
        "device_infos": {"GPU-0": info},
        "device_models": {"tesla t4": ["GPU-0"]},
        "device_busy": ["GPU-0"],
        "report_time": "2026-01-05T10:00:00Z",
    }
    (owner,) = found["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "node-uid"}


def test_pod_has_its_node_as_label_and_its_change_as_status():
    scene = Scene()

    scene.write(report(pod("a")))

    ((name, found),) = scene.named(PODS).items()
    assert name.startswith("ml-a-")
    assert found["metadata"]["labels"] == {"nvidia-gpu-scheduler.node": "n0"}
    assert found["metadata"]["ownerReferences"][0]["kind"] == "GpuNode"
    assert found["spec"]["pod_namespace"] == "ml"
    assert found["spec"]["pod_name"] == "a"
    assert found["spec"]["node_name"] == "n0"
    ((container),) = found["spec"]["containers_device"]
    assert container["container_name"] == "main"
    assert container["device_info"][0]["device_id"] == "GPU-0"
    assert found["status"] == {"last_changed_time": "2026-01-05T10:00:00Z"}


def test_unchanged_report_writes_nothing():
    scene = Scene()
    scene.write(report(pod("a")))
    scene.written()

    scene.write(report(pod("a")), report(pod("a")))
    scene.seconds += 61
    scene.write(report(pod("a")))

    assert scene.written() == []


def test_pods_that_are_gone_are_deleted_and_those_of_an_earlier_agent_as_well():
    scene = Scene()
    scene.write(report(pod("a"), pod("b")))
    later = Scene()
    later.server = scene.server
    later.writer = CustomResourceWriter(scene.server, "n0", "kube-system")

    later.write(report(pod("b")))

    assert [each["spec"]["pod_name"] for each in scene.named(PODS).values()] == ["b"]
    assert scene.named(NODES)["n0"]["spec"]["device_busy"] == ["GPU-0"]


def test_deleted_objects_are_there_again_within_a_minute():
    scene = Scene()
    scene.write(report(pod("a")))
    scene.server.objects = {
        path: each for path, each in scene.server.objects.items() if path.startswith("/api/v1")
    }

    scene.seconds += 61
    scene.write(report(pod("a")))

    assert len(scene.named(NODES)) == len(scene.named(PODS)) == 1


def test_lease_is_the_nodes_own_and_its_namespace_is_made():
    scene = Scene()

    asyncio.run(scene.writer.renew())

    (found,) = scene.named(LEASES).values()
    assert found["metadata"]["name"] == "n0"
    assert found["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert found["spec"] == {
        "holderIdentity": "n0",
        "leaseDurationSeconds": 8,
        "renewTime": "2026-01-05T10:00:00.250000Z",
    }


def test_refused_write_is_told_once_and_made_up_for(caplog):
    scene = Scene()
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 8:
            scene.server.refusal = None
        if len(pauses) == 12:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    async def read():
        return report(pod("a"))

    time = WriterClock(lambda: scene.seconds, lambda: NOW, sleep)
    writer = CustomResourceWriter(scene.server, "n0", "kube-system", time=time)
    scene.server.refusal = RefusedError(403, "Forbidden", "gpunodes")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(writer.run(read))

    assert caplog.text.count("custom resources not written") == 2
    assert len(scene.named(PODS)) == len(scene.named(LEASES)) == 1
