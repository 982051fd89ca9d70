"""What each system's container receives, to the letter."""

from dataclasses import replace

import pytest

import builders
from slicewise.dialects import DEFAULT
from slicewise.dialects.elastic.agent import hash_ids
from slicewise.dialects.shared.injection import (
    ContainerGpus,
    DeviceNode,
    GpuManagerPaths,
    HostMount,
    Link,
)
from slicewise.model import Allocation, Container, ContainerAllocation, Role, cut

GPUS = tuple(
    builders.gpu(at, "NVIDIA A10", 23028, uuid=f"GPU-{at}", minor=3 - at) for at in range(4)
)
NODE = builders.node("n0", GPUS)


def grant(limits, *gpus, ids=("1", "2"), **facts):
    """These GPUs for the one container of a pod, recorded as the extender records them."""
    pod = builders.pod(limits=limits, **facts.pop("pod", {}))
    request = DEFAULT.read_request(pod)
    (wanting,) = request.containers
    slices = tuple(cut(share, GPUS[at]) for share, at in zip(wanting.shares, gpus, strict=True))
    allocation = Allocation("n0", (ContainerAllocation("c0", slices),))
    record = DEFAULT.record_allocation(pod, request, allocation, NODE, now_ns=7)
    pod = replace(pod, annotations={**pod.annotations, **record.annotations})
    return ContainerGpus(
        pod,
        pod.containers[0],
        request,
        allocation,
        NODE,
        next(iter(limits)),
        frozenset(ids),
        **facts,
    )


def give(one: ContainerGpus):
    return DEFAULT.claim(one.pod).agent.inject(one)


def flag(one: ContainerGpus):
    return DEFAULT.claim(one.pod).agent.flag(one, 9)


def names(injection):
    return [(each.name, each.path) for each in injection.devices]


FORK = {"nvidia.com/vcuda-core": 30, "nvidia.com/vcuda-memory": 4096}


def test_tkestack_share_gets_gpu_limiter_folder_and_annotations():
    given = give(grant(FORK, 1))

    assert given.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    assert names(given) == [
        ("nvidia2", "/dev/nvidia2"),
        ("nvidiactl", "/dev/nvidiactl"),
        ("nvidia-uvm", "/dev/nvidia-uvm"),
    ]
    assert given.mounts == (
        HostMount("/etc/gpu-manager/vdriver/nvidia", "/usr/local/nvidia", optional=True),
        HostMount("/etc/gpu-manager/vm/u0", "/etc/vcuda"),
    )
    assert given.annotations == {
        "nvidia.com/vcuda-core": "30",
        "nvidia.com/vcuda-memory": str(4096 << 20),
        "nvidia.com/vcuda-device": "/dev/nvidia2",
    }
    assert (given.limit.cores, given.limit.memory, given.limit.ceiling) == (30, 4096, None)
    assert not given.limit.whole


def test_tkestack_whole_gpus_get_the_untouched_driver():
    given = give(grant({"tencent.com/vcuda-core": 200}, 0, 3))

    assert given.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-3"}
    assert given.mounts[0].source == "/etc/gpu-manager/vdriver/origin"
    assert given.annotations["tencent.com/vcuda-device"] == "/dev/nvidia3,/dev/nvidia0"
    assert given.limit.whole


def test_tkestack_ceiling_and_32_bit_libraries_are_passed_on():
    soft = {"annotations": {"nvidia.com/vcuda-core-limit": "150"}}
    given = give(grant(FORK, 1, pod=soft, compat32=True, places=GpuManagerPaths("/vm", "/drv")))

    assert given.limit.ceiling == 100
    assert given.env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib"
    assert [each.source for each in given.mounts] == ["/drv/nvidia", "/vm/u0"]


def test_tkestack_containers_get_the_devices_of_the_extra_config():
    places = GpuManagerPaths(devices=("/dev/fuse", "/dev/infiniband/uverbs0"))
    given = give(grant(FORK, 1, places=places))

    assert names(given)[-2:] == [
        ("fuse", "/dev/fuse"),
        ("infiniband/uverbs0", "/dev/infiniband/uverbs0"),
    ]


def test_tkestack_flag_says_minor_numbers_and_success():
    record = flag(grant(FORK, 1))

    assert record.annotations == {
        "nvidia.com/gpu-assigned": "true",
        "nvidia.com/predicate-gpu-idx-0": "2",
    }
    assert record.labels == {"tydic.io/bind-phase": "success"}


def test_tkestack_allocation_reads_the_same_once_it_is_flagged():
    one = grant(FORK, 1)
    flagged = replace(one.pod, annotations={**one.pod.annotations, **flag(one).annotations})

    assert DEFAULT.read_allocation(flagged, NODE) == one.allocation


@pytest.mark.parametrize(
    ("labels", "more"),
    [({}, {}), ({"cgpu.disable.isolation": "true"}, {"CGPU_DISABLE": "true"})],
    ids=["plain", "isolation-off"],
)
def test_gpushare_tells_its_account_of_the_memory(labels, more):
    given = give(grant({"aliyun.com/gpu-mem": 3}, 2, labels=labels))

    assert given.env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-2",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "22",
        **more,
    }
    assert given.mounts == ()


def test_gpushare_on_several_gpus_tells_all_of_them_and_the_totals():
    many = {"labels": {"aliyun.com/gpu-count": "4"}}
    given = give(grant({"aliyun.com/gpu-mem": 12}, 0, 1, 2, 3, pod=many))

    assert given.env["ALIYUN_COM_GPU_MEM_IDX"] == "3,2,1,0"
    assert given.env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "12"
    assert given.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1,GPU-2,GPU-3"


def test_gpushare_flag_says_assigned_and_when():
    assert flag(grant({"aliyun.com/gpu-mem": 3}, 2)).annotations == {
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "9",
    }


def test_elastic_gets_its_hash_and_links_for_an_installed_hook():
    given = give(grant({"elasticgpu.io/gpu-core": 200}, 0, 2, ids=("0-00", "0-01", "0-02")))

    assert given.env == {"GPU": "b85df0ed", "NVIDIA_VISIBLE_DEVICES": "none"}
    assert given.links == (
        Link("elastic-gpu-b85df0ed-0", "nvidia3"),
        Link("elastic-gpuctl-b85df0ed-0", "nvidiactl"),
        Link("elastic-gpu-b85df0ed-1", "nvidia1"),
        Link("elastic-gpuctl-b85df0ed-1", "nvidiactl"),
    )
    assert set(names(given)) >= {
        ("nvidia3", "/dev/nvidia3"),
        ("nvidia1", "/host/dev/elastic-gpu-b85df0ed-1"),
        ("nvidiactl", "/host/dev/nvidiactl"),
        ("nvidia-uvm", "/host/dev/nvidia-uvm"),
        ("nvidia-uvm-tools", "/host/dev/nvidia-uvm-tools"),
    }


def test_elastics_second_generation_gets_its_count_and_two_devices():
    ids = ("nano-0-00", "nano-0-01")
    given = give(grant({"elastic-gpu/gpu-percent": 2}, 1, ids=ids))
    digest = hash_ids(ids)

    assert given.env == {"GPU": digest, "NVIDIA_VISIBLE_DEVICES": "none", "ku": "2"}
    assert [each.name for each in given.links] == [
        f"elastic-gpu-{digest}",
        f"elastic-gpuctl-{digest}",
    ]
    assert ("nvidiactl", f"/host/dev/elastic-gpuctl-{digest}") in names(given)


def test_nvidias_own_resource_gets_whole_gpus():
    given = give(grant({"nvidia.com/gpu": 2}, 3, 0))

    assert given.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-0"}
    assert DeviceNode("nvidia0", "/dev/nvidia0", gpu=True) in given.devices


def test_our_own_tells_how_much_of_each_gpu():
    given = give(
        grant({"slicewise.io/gpu": 2, "slicewise.io/cores": 30, "slicewise.io/memory": 512}, 0, 1)
    )

    assert given.env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "SLICEWISE_GPU_CORES": "30,30",
        "SLICEWISE_GPU_MEMORY_MIB": "512,512",
    }


@pytest.mark.parametrize(
    "resource", ["slicewise.io/cores", "elasticgpu.io/gpu-core", "nvidia.com/gpu"]
)
def test_systems_without_a_flag_write_nothing(resource):
    limits = {resource: 1, **({"slicewise.io/memory": 1} if "slicewise" in resource else {})}
    record = flag(grant(limits, 0))

    assert not record.annotations
    assert not record.labels


def test_containers_of_one_pod_are_told_apart():
    each = [Container(name, limits=FORK, role=Role.MAIN) for name in ("a", "b")]
    pod = builders.pod(*each)
    request = DEFAULT.read_request(pod)
    given = tuple(
        ContainerAllocation(one.name, (cut(one.shares[0], GPUS[at]),))
        for at, one in enumerate(request.containers)
    )
    allocation = Allocation("n0", given)
    one = ContainerGpus(
        pod, each[1], request, allocation, NODE, "nvidia.com/vcuda-core", frozenset("1")
    )

    assert give(one).env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    assert flag(one).annotations["nvidia.com/predicate-gpu-idx-0"] == "3"
