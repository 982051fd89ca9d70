"""The plugins as people run them: by real kubectl, against a real API server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import gpushare_node

pytestmark = pytest.mark.cluster
BIN = Path(sys.executable).parent


def kubectl(cluster: GpuCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """What kubectl does with our plugins on its path."""
    environment = cluster.plane.kubectl_environment()
    environment["PATH"] = os.pathsep.join((str(BIN), environment["PATH"]))
    return subprocess.run(
        [cluster.plane.binaries.path("kubectl"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def share(name: str, units: int, cards: int = 1, **fields: object) -> dict[str, object]:
    labels = {"aliyun.com/gpu-count": str(cards)} if cards > 1 else {}
    return pod(name, {"aliyun.com/gpu-mem": units}, metadata={"labels": labels}, **fields)


def unscheduled(name: str, units: int, node: str) -> dict[str, object]:
    """A pod as the original left it when its scheduler never asked the extender."""
    return share(name, units, nodeName=node)


def old_pod(name: str, units: int, node: str, card: int) -> dict[str, object]:
    """A pod that the original extender placed and its plugin started."""
    marks = {"IDX": card, "POD": units, "DEV": 15, "ASSIGNED": "true", "ASSUME_TIME": 1}
    annotations = {f"ALIYUN_COM_GPU_MEM_{key}": str(value) for key, value in marks.items()}
    return pod(
        name, {"aliyun.com/gpu-mem": units}, metadata={"annotations": annotations}, nodeName=node
    )


def test_kubectl_inspect_gpushare_shows_old_and_new_pods_on_their_cards(gpu_cluster: GpuCluster):
    url = gpu_cluster.start_extender("--policy=binpack")
    gpu_cluster.schedule_with(wirings.gpushare(url))
    gpu_cluster.add_nodes(gpushare_node("gpu-a", 15, 2))
    gpu_cluster.apply(old_pod("old", 6, "gpu-a", 1), unscheduled("raw", 2, "gpu-a"))
    gpu_cluster.wait_running("default", 2)
    gpu_cluster.apply(share("both", 8, cards=2), namespace="team-x")
    gpu_cluster.wait_running("team-x", 1)

    summary = kubectl(gpu_cluster, "inspect", "gpushare")
    details = kubectl(gpu_cluster, "inspect", "gpushare", "gpu-a", "-d")
    document = json.loads(kubectl(gpu_cluster, "inspect", "gpushare", "-o", "json").stdout)

    heads = ["NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU1(Allocated/Total)"]
    lines = summary.stdout.splitlines()
    assert re.split(" {2,}", lines[0]) == [*heads, "PENDING(Allocated)", "GPU Memory(GiB)"], summary
    assert lines[1].split()[2:] == ["4/15", "10/15", "2", "16/30"]
    assert lines[-1] == "16/30 (53%)  "
    rows = [line.split() for line in details.stdout.splitlines()]
    assert ["old", "default", "0", "6", "0"] in rows
    assert ["raw", "default", "0", "0", "2"] in rows
    assert ["both", "team-x", "4", "4", "0"] in rows
    assert [card["usedGPU"] for card in document["nodes"][0]["devs"]] == [4, 10]


def test_kubectl_tells_of_an_unknown_node_with_an_exit_code(gpu_cluster: GpuCluster):
    done = kubectl(gpu_cluster, "inspect", "gpushare", "nobody")

    assert done.returncode == 1
    assert done.stderr.startswith('Error: node "nobody" not found')
    assert done.stdout == ""
