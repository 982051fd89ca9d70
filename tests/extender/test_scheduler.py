"""The real scheduler with the configuration that each system's users have, through our extender."""

import contextlib
import json
import subprocess

import pytest

from conformance.kubectl import find_program
from extender.living import Cluster, wait_until
from slicewise.dialects.scheduler_config import build_config

pytestmark = pytest.mark.cluster
CAPACITY = {
    "cpu": "64",
    "memory": "256Gi",
    "pods": "110",
    "slicewise.io/gpu": "2",
    "slicewise.io/cores": "200",
    "slicewise.io/memory": "81920",
    "aliyun.com/gpu-mem": "80",
    "elasticgpu.io/gpu-core": "200",
    "elasticgpu.io/gpu-memory": "81920",
    "nvidia.com/vcuda-core": "200",
    "nvidia.com/vcuda-memory": "81920",
    "nvidia.com/gpu": "2",
}


@contextlib.contextmanager
def scheduling(folder, dialect):
    """A cluster whose pods the real scheduler places by asking the extender."""
    program = find_program("kube-scheduler")
    if program is None:
        pytest.skip("no kube-scheduler: build it or put it into KUBEBUILDER_ASSETS")
    with Cluster(capacity=CAPACITY) as cluster, (folder / "log").open("wb") as log:
        cluster.wait_ready()
        kubeconfig = cluster.playground.write_kubeconfig(folder / "kubeconfig")
        config = build_config(dialect, cluster.url)
        config["leaderElection"] = {"leaderElect": False}
        config["clientConnection"] = {"kubeconfig": str(kubeconfig)}
        (folder / "config.json").write_text(json.dumps(config))
        command = [program, "--config", str(folder / "config.json"), "--secure-port=0"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield cluster
        finally:
            process.kill()
            process.wait()


def wait_placed(cluster, *names):
    def placed():
        return all(cluster.playground.get("pods", name)["spec"].get("nodeName") for name in names)

    wait_until(placed)
    return [cluster.playground.get("pods", name) for name in names]


@pytest.mark.parametrize(
    ("dialect", "limits", "keys"),
    [
        ("slicewise", {"slicewise.io/cores": "30"}, ["slicewise.io/allocation"]),
        (
            "tkestack",
            {"nvidia.com/vcuda-core": "30", "nvidia.com/vcuda-memory": "1000"},
            ["nvidia.com/predicate-gpu-idx-0", "nvidia.com/predicate-node"],
        ),
        (
            "gpu-admission",
            {"nvidia.com/vcuda-core": "30", "nvidia.com/vcuda-memory": "1000"},
            ["nvidia.com/predicate-gpu-idx-0", "nvidia.com/predicate-node"],
        ),
        ("gpushare", {"aliyun.com/gpu-mem": "3"}, ["ALIYUN_COM_GPU_MEM_IDX"]),
        ("elastic", {"elasticgpu.io/gpu-core": "30"}, ["elasticgpu.io/container-c0"]),
        ("all", {"nvidia.com/gpu": "1"}, ["slicewise.io/allocation"]),
    ],
)
def test_pods_are_placed_with_their_systems_marks(tmp_path, dialect, limits, keys):
    with scheduling(tmp_path, dialect) as cluster:
        for number in range(3):
            cluster.add(f"p{number}", limits)
        cluster.add("plain", {"cpu": "1"})

        *placed, _ = wait_placed(cluster, "p0", "p1", "p2", "plain")

        assert all(set(keys) <= set(pod["metadata"]["annotations"]) for pod in placed)
        assert cluster.problems() == ()


def test_schedule_routes_filter_for_the_scheduler(tmp_path):
    with scheduling(tmp_path, "gpuscheduler") as cluster:
        wanted = {"nvidia.com/gpu.model": "A100"}
        cluster.add("p", {"nvidia.com/gpu": "1"}, annotations=wanted)
        cluster.add("other", {"nvidia.com/gpu": "1"}, annotations={"nvidia.com/gpu.model": "H100"})

        wait_placed(cluster, "p")
        wait_until(lambda: "No GPU of an admitted model" in json.dumps(events(cluster)))


def test_refusals_reach_the_pods_events(tmp_path):
    with scheduling(tmp_path, "slicewise") as cluster:
        cluster.add("large", {"slicewise.io/cores": "30", "slicewise.io/memory": "50000"})

        wait_until(lambda: "2 No GPU is large enough" in json.dumps(events(cluster)))


def test_preemption_frees_exactly_the_needed_pod(tmp_path):
    with scheduling(tmp_path, "slicewise") as cluster:
        for number in range(4):
            cluster.add(f"p{number}", {"slicewise.io/gpu": "1"}, priority=number)
        wait_placed(cluster, *(f"p{number}" for number in range(4)))

        cluster.add("urgent", {"slicewise.io/gpu": "1"}, priority=100)

        wait_placed(cluster, "urgent")
        names = {pod["metadata"]["name"] for pod in cluster.playground.objects("pods")}
        assert names == {"p1", "p2", "p3", "urgent"}
        assert cluster.problems() == ()


def events(cluster):
    return cluster.playground.objects("events")
