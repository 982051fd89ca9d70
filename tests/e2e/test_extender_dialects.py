import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod, read_manifests
from e2e.gpu_nodes import (
    A10,
    T4,
    gpushare_node,
    mixed_node,
    nvidia_node,
    percent_node,
    register_node,
)
from e2e.truth import held_gpus
from slicewise_playground.kubelet.simulated_node import SimulatedNode

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"
NANOSECONDS = r"1[0-9]{18}"
FORK_BIND = {"tydic.io/bind-time": NANOSECONDS, "tydic.io/bind-phase": "allocating"}
# Labels that controllers of Kubernetes add to what they make.
CONTROLLERS = re.compile(r"pod-template-hash|controller-revision-hash|.*kubernetes\.io/.*")


@dataclass(frozen=True)
class Example:
    """One system's example, its own scheduler and node, and the record its contract names."""

    files: tuple[str, ...]
    wiring: wirings.Wiring
    node: SimulatedNode
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    count: int = 1
    scheduler: str = "default-scheduler"


def predicate(prefix: str, *indexes: str) -> dict[str, str]:
    """The annotations of gpu-admission, with the GPU indexes of each container."""
    return {
        f"{prefix}/predicate-node": "own",
        f"{prefix}/gpu-assigned": "false",
        f"{prefix}/predicate-time": NANOSECONDS,
        **{f"{prefix}/predicate-gpu-idx-{at}": each for at, each in enumerate(indexes)},
    }


SYSTEMS = {
    "gpu-admission": Example(
        ("gpu-admission/gpu-pod2.yaml",),
        wirings.gpu_scheduler,
        register_node("own", A10, 2),
        predicate("nvidia.com", "[01]", "[01]"),
        FORK_BIND,
        scheduler="gpu-scheduler",
    ),
    "gpu-manager-share": Example(
        ("gpu-manager/vcuda.yaml",),
        wirings.gpu_admission,
        register_node("own", A10, 2),
        predicate("nvidia.com", "[01]"),
        FORK_BIND,
    ),
    "gpu-manager-gpus": Example(
        ("gpu-manager/vcuda-two-gpus.yaml",),
        wirings.gpu_admission,
        register_node("own", A10, 2),
        predicate("nvidia.com", "0,1"),
        FORK_BIND,
    ),
    "gpushare": Example(
        ("gpushare/binpack-1.yaml",),
        wirings.gpushare,
        gpushare_node("own", 23, 8),
        {
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_DEV": "23",
            "ALIYUN_COM_GPU_MEM_POD": "3",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": NANOSECONDS,
        },
        {},
        count=3,
    ),
    "gpushare-four-gpus": Example(
        ("gpushare/four-gpus.yaml",),
        wirings.gpushare,
        gpushare_node("own", 23, 8),
        {
            "ALIYUN_COM_GPU_MEM_IDX": "[0-7](,[0-7]){3}",
            "ALIYUN_COM_GPU_MEM_DEV": "23",
            "ALIYUN_COM_GPU_MEM_POD": "12",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": NANOSECONDS,
            "scheduler.framework.gpushare.allocation": ".*",
        },
        {},
    ),
    "elastic-gpu": Example(
        ("elastic-gpu/cuda-gpu-test.yaml",),
        wirings.elastic,
        percent_node("own", 2),
        {"elastic-gpu/assume": "true", "elastic-gpu/container-cuda": "[01]"},
        {"elastic-gpu/assume": "true"},
    ),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_example_runs_under_its_own_configuration_with_exactly_its_marks(
    gpu_cluster: GpuCluster, system: str
) -> None:
    example = SYSTEMS[system]
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(SimulatedNode("no-gpu"), example.node)
    gpu_cluster.schedule_with(example.wiring(url), profiles=[{"schedulerName": example.scheduler}])

    documents = read_manifests(EXAMPLES, example.files)
    gpu_cluster.apply(*documents, namespace=system)

    for found in gpu_cluster.wait_running(system, example.count):
        added = added_marks(found, documents[0])
        # The signed record stands beside the marks of every system.
        for key in ("slicewise.io/allocation", "slicewise.io/signature"):
            assert added[0].pop(key)
        assert_marks(added[0], example.annotations)
        assert_marks(added[1], example.labels)
        assert found["spec"]["nodeName"] == "own"
    totals = {"own": [A10[1]] * len(gpu_cluster.gpus()["own"])}
    assert gpu_cluster.gpus()["own"] == held_gpus(gpu_cluster.pods(system), totals)["own"]


def added_marks(
    found: Mapping[str, Any], document: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """The annotations and labels that neither the manifest nor Kubernetes gave the pod."""
    template = document["spec"].get("template", document)["metadata"]
    added = []
    for kind in ("annotations", "labels"):
        given, now = template.get(kind, {}), found["metadata"].get(kind, {})
        assert given.items() <= now.items()
        added.append(
            {k: v for k, v in now.items() if k not in given and not CONTROLLERS.fullmatch(k)}
        )
    return added[0], added[1]


def assert_marks(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """The same keys, and values that match."""
    assert found.keys() == expected.keys()
    for key, pattern in expected.items():
        assert re.fullmatch(pattern, found[key]), (key, found[key])


def test_wanted_model_is_found_over_mutual_tls_as_nvidia_gpu_scheduler_is_configured(
    gpu_cluster: GpuCluster,
) -> None:
    serving = gpu_cluster.plane.authority.issue("extender", hosts=["127.0.0.1"])
    authority = gpu_cluster.plane.authority.certificate.certificate
    admin = gpu_cluster.plane.admin.user
    url = gpu_cluster.start_extender(
        f"--tls-cert={serving.certificate}",
        f"--tls-key={serving.key}",
        f"--tls-client-ca={authority}",
        ready=False,
    ).replace("http:", "https:")
    gpu_cluster.add_nodes(nvidia_node("many-a10", A10, 8), nvidia_node("t4", T4, 2), known=False)
    files = {"caFile": authority, "certFile": admin.certificate, "keyFile": admin.key}
    tls = {key: str(path) for key, path in files.items()}
    # The users' `ignorable: true` would hide a refused handshake behind a lucky placement.
    gpu_cluster.schedule_with({**wirings.gpuscheduler(url), "tlsConfig": tls, "ignorable": False})

    documents = read_manifests(EXAMPLES, ["nvidia-gpu-scheduler/two-of-a-model.yaml"])
    gpu_cluster.apply(*documents, namespace="models")

    (found,) = gpu_cluster.wait_running("models", 1)
    assert found["spec"]["nodeName"] == "t4"
    # The original writes nothing on pods, and its configuration leaves the binding to others.
    assert added_marks(found, documents[0]) == ({}, {})


def test_one_gpushare_pod_has_three_gib_on_each_of_four_gpus(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(gpushare_node("four", 4, 4))
    gpu_cluster.schedule_with(wirings.gpushare(url))
    documents = read_manifests(EXAMPLES, ["gpushare/four-gpus.yaml"])

    gpu_cluster.apply(*documents, namespace="four-gpus")

    gpu_cluster.wait_running("four-gpus", 1)
    assert gpu_cluster.gpus()["four"] == [(0, 3072)] * 4
    # One more GiB is left on every GPU, so a second such pod must wait and say why.
    gpu_cluster.apply(pod("one", {"aliyun.com/gpu-mem": 1}), namespace="four-gpus")
    gpu_cluster.wait_running("four-gpus", 2)
    gpu_cluster.apply(pod("two", {"aliyun.com/gpu-mem": 2}), namespace="four-gpus")
    gpu_cluster.wait_message("four-gpus", "two", "Insufficient GPU memory")


def test_all_systems_share_the_same_gpus_within_their_size(gpu_cluster: GpuCluster) -> None:
    url = gpu_cluster.start_extender()
    gpu_cluster.add_nodes(
        mixed_node("a10-a", A10, 4), mixed_node("a10-b", A10, 4), mixed_node("t4", T4, 8)
    )
    for system, example in SYSTEMS.items():
        gpu_cluster.schedule_with(
            example.wiring(url), profiles=[{"schedulerName": example.scheduler}]
        )
        gpu_cluster.apply(*read_manifests(EXAMPLES, example.files), namespace=system)
        gpu_cluster.wait_running(system, example.count)
    gpu_cluster.schedule_with(wirings.everything(url))
    own = [f"slicewise/{name}.yaml" for name in ("share", "linked-gpus", "unequal-shares")]
    documents = read_manifests(EXAMPLES, [*own, "nvidia-gpu-scheduler/two-of-a-model.yaml"])
    gpu_cluster.apply(*documents, namespace="own")
    gpu_cluster.wait_running("own", 4)

    gpu_cluster.apply(*(FILLERS[at % 4](at) for at in range(160)), namespace="fill")
    settled = gpu_cluster.wait_settled("fill", 160)

    assert 0 < len(settled) < 160
    sizes = {"a10-a": [24576] * 4, "a10-b": [24576] * 4, "t4": [15360] * 8}
    held = held_gpus(gpu_cluster.pods(), sizes)
    assert held == gpu_cluster.gpus()
    for node, gpus in held.items():
        for (cores, memory), size in zip(gpus, sizes[node], strict=True):
            assert cores <= 100, held
            assert memory <= size, held


FILLERS: tuple[Callable[[int], dict[str, Any]], ...] = (
    lambda at: pod(f"p{at}", {"nvidia.com/vcuda-core": 15, "nvidia.com/vcuda-memory": 3000}),
    lambda at: pod(f"p{at}", {"aliyun.com/gpu-mem": 2}),
    lambda at: pod(f"p{at}", {"elasticgpu.io/gpu-core": 10, "elasticgpu.io/gpu-memory": 2500}),
    lambda at: pod(f"p{at}", {"slicewise.io/cores": 20, "slicewise.io/memory": 3500}),
)
