import builders
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.kubelet.dra_messages import HEALTHY, UNHEALTHY
from slicewise.model import Links, Node
from slicewise.model.grants import PodGrants
from slicewise.model.isolation import IsolationTier, OfferedIsolation
from slicewise.nodeagent.claims.devices import (
    list_devices,
    list_health,
    read_version,
    share_devices,
)
from slicewise.nvml.driver import GpuDevice, Hardware

HOOK = (IsolationTier.HOOK,)


def describe(*gpus, links=None, roots=(), evict=False, **facts):
    roots = (*roots, *("" for _ in gpus))
    devices = tuple(
        GpuDevice(gpu, f"00000000:{gpu.index + 1:02X}:00.0", 0, 80, pcie_root=root)
        for gpu, root in zip(gpus, roots, strict=False)
    )
    hardware = Hardware(devices, links, "580.95.05", "13.0")
    return list_devices(hardware, NodeFacts(Node("n0", gpus, links), **facts), evict=evict)


def test_device_is_named_by_its_uuid_and_described_by_versions_the_server_takes():
    offered = OfferedIsolation(HOOK, HOOK)
    gpu = builders.gpu(0, uuid="GPU-5A1E", numa=1, isolation=offered)
    (device,) = describe(gpu, roots=["pci0000:00"])

    assert device.name == "gpu-5a1e"
    assert device.memory == 40960
    assert device.attributes == {
        "uuid": "GPU-5A1E",
        "productName": "NVIDIA A100-SXM4-40GB",
        "index": 0,
        "minor": 0,
        "numa": 1,
        "cudaComputeCapability": (8, 0, 0),
        "driverVersion": (580, 95, 5),
        "cudaDriverVersion": (13, 0, 0),
        "isolation": "hook/hook",
        "resource.kubernetes.io/pciBusID": "0000:01:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }


def test_gpus_of_one_numa_node_stand_side_by_side():
    devices = describe(*(builders.gpu(at, numa=at % 2) for at in range(4)))

    assert [device.attributes["index"] for device in devices] == [0, 2, 1, 3]


def test_gpus_below_one_pcie_root_stand_side_by_side():
    roots = ["pci0000:80", "pci0000:00", "pci0000:80", "pci0000:00"]
    devices = describe(*map(builders.gpu, range(4)), roots=roots)

    assert [device.attributes["index"] for device in devices] == [1, 3, 0, 2]


def test_gpus_that_reach_each_other_by_nvlink_share_a_group():
    nvlinks = ((0, 4, 0, 0), (4, 0, 4, 0), (0, 4, 0, 0), (0, 0, 0, 0))
    links = Links(nvlinks, ((0,) * 4,) * 4)
    devices = describe(*map(builders.gpu, range(4)), links=links)

    groups = [device.attributes.get("nvlinkGroup") for device in devices]
    assert groups == ["nvlink-0", "nvlink-0", "nvlink-0", None]


def test_unhealthy_and_cordoned_gpus_are_tainted_and_split_ones_are_left_out():
    gpus = (
        builders.gpu(0, healthy=False),
        builders.gpu(1, cordoned=True),
        builders.gpu(2, mig=True),
    )
    sick, closed = describe(*gpus, troubles={"GPU-0": "XID 79: fallen off the bus"})

    assert [(each.key, each.value) for each in sick.taints] == [
        ("slicewise.io/unhealthy", "XID-79-fallen-off-the-bus")
    ]
    assert [each.key for each in closed.taints] == ["slicewise.io/cordoned"]


def test_pods_are_deleted_from_unhealthy_gpus_only_where_that_was_asked_for():
    gpus = (builders.gpu(0, healthy=False), builders.gpu(1, cordoned=True))
    effects = [
        [taint.effect for device in describe(*gpus, evict=evict) for taint in device.taints]
        for evict in (False, True)
    ]

    assert effects == [["NoSchedule", "NoSchedule"], ["NoExecute", "NoSchedule"]]


def test_health_names_every_device_and_says_why_one_is_unhealthy():
    gpus = (builders.gpu(0), builders.gpu(1, healthy=False))
    told = list_health("n0", gpus, {"GPU-1": "XID 79"}, 17)

    assert [(each.device.device, each.health, each.message) for each in told] == [
        ("gpu-0", HEALTHY, ""),
        ("gpu-1", UNHEALTHY, "XID 79"),
    ]


def test_text_that_is_no_version_is_left_out():
    assert read_version("535.104-beta") is None
    assert read_version("") is None


def test_shared_devices_lack_what_pods_hold_by_name_and_wait_for_our_word():
    held = {"c0": (builders.Slice(0, 30, 4096),)}
    pods = [PodGrants(uid, uid, (builders.container(),), recorded=held) for uid in ("a", "b")]
    node = builders.node(gpus=[builders.gpu(0), builders.gpu(1)])

    first, second = share_devices(describe(*node.gpus), node, pods)

    assert (first.taken, second.taken) == ((60, 8192), (0, 0))
    assert first.judged
    assert second.judged
