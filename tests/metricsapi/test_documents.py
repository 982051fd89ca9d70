import asyncio
import json
import os
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from metricsapi.scene import PREFIX, SECOND, Scene, read
from reports.values import gpu, node, pod
from slicewise.metricsapi.documents import write_age
from slicewise.reports import ContainerReport, DeviceReport, MeasuredUse, NodeReport, PodReport
from slicewise.reports.gpu_documents import write_exact_time, write_time


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def body(scene, path, **facts):
    return asyncio.run(scene.ask(path, **facts)).body


def test_discovery_is_the_originals():
    assert read(Scene(), PREFIX) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "metrics.nvidia.com/v1alpha1",
        "resources": [
            {
                "name": "podresources",
                "singularName": "podresource",
                "namespaced": False,
                "kind": "PodResource",
                "verbs": ["list", "watch"],
            },
            {
                "name": "gpuinfos",
                "singularName": "gpuinfo",
                "namespaced": False,
                "kind": "GpuInfo",
                "verbs": ["list"],
            },
        ],
    }


def test_empty_lists_have_empty_items():
    scene = Scene()

    assert body(scene, f"{PREFIX}/podresources") == (
        b'{"kind":"List","apiVersion":"v1","items":[]}\n'
    )
    assert body(scene, f"{PREFIX}/gpuinfos") == b'{"kind":"List","apiVersion":"v1","items":[]}\n'


def test_podresources_is_the_originals_to_the_letter():
    scene = Scene()
    scene.tell(node(pods=[pod("a<b>")]))

    assert body(scene, f"{PREFIX}/podresources").decode() == (
        '{"kind":"List","apiVersion":"v1","items":[{"kind":"PodResource","apiVersion":"v1alpha1",'
        '"spec":{"pod_name":"a<b>","pod_namespace":"ml","containers_device":[{"container_name":'
        '"main","device_info":[{"device_id":"GPU-a","device_brand":"BRAND_TESLA","device_model":'
        '"Tesla T4","device_busid":"0000:00:04.0","device_node":"n1"}]}]},"status":'
        '{"last_changed_time":"2026-01-05T10:00:00Z"}}]}\n'
    )


def test_gpuinfos_is_the_originals_to_the_letter():
    scene = Scene()
    scene.tell(node(gpus=(gpu("GPU-b", index=1), gpu("GPU-a")), pods=[pod(gpus=["GPU-b"])]))
    info = (
        '{"device_id":"%s","device_brand":"BRAND_TESLA","device_model":"Tesla T4",'
        '"device_busid":"0000:00:04.0","device_node":"n1"}'
    )

    assert body(scene, f"{PREFIX}/gpuinfos").decode() == (
        '{"kind":"List","apiVersion":"v1","items":[{"kind":"GpuInfo","apiVersion":"v1alpha1",'
        '"spec":{"device_node":"n1","device_infos":{"GPU-a":' + info % "GPU-a" + ',"GPU-b":'
        "" + info % "GPU-b" + '},"device_models":{"tesla t4":["GPU-a","GPU-b"]},'
        '"report_time":"2026-01-05T10:00:00.25Z","device_busy":["GPU-b"]},"status":'
        '{"node_health":"True","node_last_health_time":"2026-01-05T10:00:00Z"}}]}\n'
    )


def test_container_with_other_devices_alone_has_no_list_of_gpus():
    held = PodReport(namespace="ml", name="a", containers=(ContainerReport(name="nic"),))
    scene = Scene()
    scene.tell(node(pods=[held]))

    items = read(scene, f"{PREFIX}/podresources")["items"]

    assert items[0]["spec"]["containers_device"] == [{"container_name": "nic"}]


def test_container_lists_every_gpu_it_holds_once():
    devices = tuple(
        DeviceReport(gpu=uuid, id=plain)
        for uuid, plain in [("GPU-a", "GPU-a::0"), ("GPU-a", "GPU-a::1"), ("GPU-b", "GPU-b::0")]
    )
    main = ContainerReport(name="main", devices=devices)
    held = PodReport(namespace="ml", name="a", containers=(main,))
    scene = Scene()
    scene.tell(node(gpus=(gpu("GPU-a"), gpu("GPU-b")), pods=[held]))

    spec = read(scene, f"{PREFIX}/podresources")["items"][0]["spec"]

    infos = spec["containers_device"][0]["device_info"]
    assert [info["device_id"] for info in infos] == ["GPU-a", "GPU-b"]
    assert all(info["device_model"] == "Tesla T4" for info in infos)


def test_node_without_a_heartbeat_is_unknown_in_the_originals_spelling():
    scene = Scene()
    scene.registry.tell(node())

    status = read(scene, f"{PREFIX}/gpuinfos")["items"][0]["status"]

    assert status == {"node_health": "UnKnow", "node_last_health_time": "UnKnow"}


def test_silent_node_keeps_the_time_it_was_last_heard():
    scene = Scene()
    scene.tell(node())
    scene.seconds = 10.0
    scene.registry.sweep()

    status = read(scene, f"{PREFIX}/gpuinfos")["items"][0]["status"]

    assert status == {"node_health": "False", "node_last_health_time": "2026-01-05T10:00:00Z"}


def test_second_release_lists_the_same_facts_under_its_own_names():
    scene = Scene()
    scene.tell(node(pods=[pod("a")]))

    pods = json.loads(body(scene, f"{SECOND}/gpupods"))
    nodes = json.loads(body(scene, f"{SECOND}/gpunodes"))

    held, gpus = pods["items"][0], nodes["items"][0]
    assert list(pods) == list(nodes) == ["metadata", "items"]
    assert held["metadata"]["labels"] == {"nvidia-gpu-scheduler.node": "n1"}
    assert held["metadata"]["namespace"] == "kube-system"
    assert held["metadata"]["name"].startswith("ml-a-")
    assert held["spec"]["node_name"] == "n1"
    assert held["spec"]["containers_device"][0]["container_name"] == "main"
    assert gpus["metadata"]["name"] == "n1"
    assert list(gpus["spec"]) == ["device_infos", "device_models", "report_time", "device_busy"]
    assert gpus["status"]["health"] == "True"
    assert gpus["status"]["node"] == "n1"


def test_pods_whose_joined_names_are_equal_have_names_of_their_own_in_the_second_release():
    scene = Scene()
    scene.tell(node(pods=[pod("c", namespace="a-b"), pod("b-c", namespace="a")]))

    items = read(scene, f"{SECOND}/gpupods")["items"]

    assert len({item["metadata"]["name"] for item in items}) == 2


def test_long_lists_are_sent_in_pieces_and_are_the_same():
    scene = Scene()
    pods = [pod(f"p{at:04}") for at in range(1200)]
    scene.tell(NodeReport(node="n1", gpus=(gpu(),), pods=tuple(pods)))

    items = read(scene, f"{PREFIX}/podresources")["items"]

    assert [item["spec"]["pod_name"] for item in items] == [each.name for each in pods]


@pytest.mark.parametrize(
    ("moment", "plain", "exact"),
    [
        pytest.param(
            datetime(2022, 1, 5, 9, 8, 7, tzinfo=timezone(timedelta(hours=8))),
            "2022-01-05T09:08:07+08:00",
            "2022-01-05T09:08:07+08:00",
            id="whole-second-in-a-zone",
        ),
        pytest.param(
            datetime(2022, 1, 5, 9, 8, 7, 120300, tzinfo=UTC),
            "2022-01-05T09:08:07Z",
            "2022-01-05T09:08:07.1203Z",
            id="fraction-in-utc",
        ),
    ],
)
def test_times_are_written_as_go_writes_them(moment, plain, exact):
    assert write_time(moment) == plain
    assert write_exact_time(moment) == exact


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (119, "119s"), (300, "5m"), (7200, "2h"), (200000, "2d")]
)
def test_ages_are_short(seconds, text):
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert write_age(now - timedelta(seconds=seconds), now) == text


def test_use_is_no_change_of_a_pod():
    scene = Scene()
    session = scene.tell(node(pods=[pod("a")]))
    before = read(scene, f"{PREFIX}/podresources")
    scene.seconds = 60.0
    used = DeviceReport(gpu="GPU-a", use=MeasuredUse(memory_mib=4096, cores=70))
    busy = PodReport(
        namespace="ml", name="a", containers=(ContainerReport(name="main", devices=(used,)),)
    )
    session.replace(node(pods=[busy]))

    assert read(scene, f"{PREFIX}/podresources") == before
