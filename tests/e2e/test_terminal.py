"""The plugins as people run them: by real kubectl, against a real API server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import builders
from e2e import wirings
from e2e.gpu_cluster import GpuCluster, pod
from e2e.gpu_nodes import A10, T4, gpushare_node, mixed_node
from nodeagent import scenes
from slicewise import __version__
from slicewise.dialects import write_gpus
from slicewise.httpd import (
    Answer,
    Handler,
    HttpRequest,
    HttpResponse,
    ServerSettings,
    json_response,
)
from slicewise.nodeagent.usage.node_usage import measure
from slicewise.nodeagent.usage.reporting import write_report
from slicewise_playground.threaded_server import ThreadedServer
from slicewise_testbed.links import Links
from slicewise_testbed.testbed import wait_until

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


def share(name: str, units: int, gpus: int = 1, **fields: object) -> dict[str, object]:
    labels = {"aliyun.com/gpu-count": str(gpus)} if gpus > 1 else {}
    return pod(name, {"aliyun.com/gpu-mem": units}, metadata={"labels": labels}, **fields)


def unscheduled(name: str, units: int, node: str) -> dict[str, object]:
    """A pod as the original left it when its scheduler never asked the extender."""
    return share(name, units, nodeName=node)


def old_pod(name: str, units: int, node: str, gpu: int) -> dict[str, object]:
    """A pod that the original extender placed and its plugin started."""
    marks = {"IDX": gpu, "POD": units, "DEV": 15, "ASSIGNED": "true", "ASSUME_TIME": 1}
    annotations = {f"ALIYUN_COM_GPU_MEM_{key}": str(value) for key, value in marks.items()}
    return pod(
        name, {"aliyun.com/gpu-mem": units}, metadata={"annotations": annotations}, nodeName=node
    )


def test_kubectl_inspect_gpushare_shows_old_and_new_pods_on_their_gpus(gpu_cluster: GpuCluster):
    url = gpu_cluster.start_extender("--policy=binpack")
    gpu_cluster.schedule_with(wirings.gpushare(url))
    gpu_cluster.add_nodes(gpushare_node("gpu-a", 15, 2))
    gpu_cluster.apply(old_pod("old", 6, "gpu-a", 1), unscheduled("raw", 2, "gpu-a"))
    gpu_cluster.wait_running("default", 2)
    gpu_cluster.apply(share("both", 8, gpus=2), namespace="team-x")
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
    assert [gpu["usedGPU"] for gpu in document["nodes"][0]["devs"]] == [4, 10]


def test_kubectl_tells_of_an_unknown_node_with_an_exit_code(gpu_cluster: GpuCluster):
    done = kubectl(gpu_cluster, "inspect", "gpushare", "nobody")

    assert done.returncode == 1
    assert done.stderr.startswith('Error: node "nobody" not found')
    assert done.stdout == ""


def gpus_of(found: dict[str, Any]) -> dict[str, list[int]]:
    """The GPUs of every container, by Slicewise's own record."""
    record = json.loads(found["metadata"]["annotations"]["slicewise.io/allocation"])
    return {name: [piece[0] for piece in pieces] for name, pieces in record["containers"].items()}


def part(name: str, cores: int, memory: int) -> dict[str, Any]:
    return pod(name, {"slicewise.io/cores": cores, "slicewise.io/memory": memory})


@pytest.fixture
def ours(gpu_cluster: GpuCluster) -> GpuCluster:
    """Two nodes of two GPUs, and a scheduler that asks Slicewise about everything."""
    url = gpu_cluster.start_extender()
    gpu_cluster.schedule_with(wirings.everything(url))
    gpu_cluster.add_nodes(mixed_node("m0", A10, 2), mixed_node("m1", T4, 2))
    return gpu_cluster


def test_real_scheduler_does_what_what_if_foretold(ours: GpuCluster, tmp_path: Path):
    pods = [part("a", 60, 20000), part("b", 60, 12000), part("c", 60, 12000), part("d", 30, 30000)]
    foretold = []
    for each in pods:
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump(each))
        alone = kubectl(ours, "slicewise", "what-if", "-f", str(file), "-o", "json")
        asked = kubectl(
            ours, "slicewise", "what-if", "-f", str(file), "-o", "json", "--url", ours.url()
        )
        [told] = json.loads(alone.stdout)["pods"]
        assert alone.returncode == asked.returncode == (0 if told["fits"] else 1)
        [heard] = json.loads(asked.stdout)["pods"]
        assert (told.get("node"), told.get("gpus")) == (heard.get("node"), heard.get("gpus"))
        foretold.append(told)
        ours.apply(each)
        if told["fits"]:
            found = ours.wait_bound("default", each["metadata"]["name"])
            assert (found["spec"]["nodeName"], gpus_of(found)) == (told["node"], told["gpus"])
        else:
            ours.wait_message(
                "default", each["metadata"]["name"], "Insufficient slicewise.io/memory"
            )

    assert [told["fits"] for told in foretold] == [True, True, True, False]
    why = kubectl(ours, "slicewise", "why", "d")
    assert why.returncode == 1
    assert "the scheduler itself leaves out 2: 2: insufficient slicewise.io/memory" in why.stdout
    assert "smallest change: ask for " in why.stdout


def test_cordoned_gpu_gets_no_pod_from_the_real_scheduler(ours: GpuCluster, tmp_path: Path):
    closed = kubectl(ours, "slicewise", "cordon", "m0", "0", "1")
    assert closed.returncode == 0, closed.stderr
    assert kubectl(ours, "slicewise", "cordon", "m1", "1").returncode == 0
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod("any", {"slicewise.io/gpu": 1})))
    words = ("what-if", "-f", str(file), "--replicas=4", "-o", "json", "--url", ours.url())
    wait_until(
        lambda: json.loads(kubectl(ours, "slicewise", *words).stdout)["fitting"] == 1,
        60,
        lambda: "the extender has not heard of the cordon",
    )
    ours.apply(pod("one", {"slicewise.io/gpu": 1}))
    one = ours.wait_bound("default", "one")
    ours.apply(pod("two", {"slicewise.io/gpu": 1}))
    ours.wait_message("default", "two", "Too few healthy GPUs")

    assert (one["spec"]["nodeName"], gpus_of(one)) == ("m1", {"main": [0]})
    table = kubectl(ours, "slicewise", "top").stdout
    assert [line.split()[-1] for line in table.splitlines() if " gpu " in line] == [
        "cordoned",
        "cordoned",
        "-",
        "cordoned",
    ]
    assert "uncordon gpu 0, 1 of node m0" in kubectl(ours, "slicewise", "why", "two").stdout
    assert kubectl(ours, "slicewise", "uncordon", "m0", "--all").returncode == 0
    wait_until(
        lambda: ours.ask("/explain?pod=default/two").get("best"), 60, lambda: "m0 stays closed"
    )
    # However late the extender heard of it, this makes the scheduler look once more.
    ours.plane.kubectl("label", "node", "m0", "looked=again")
    assert ours.wait_bound("default", "two")["spec"]["nodeName"] == "m0"


def test_doctor_reads_a_real_cluster(ours: GpuCluster, tmp_path: Path):
    file = tmp_path / "scheduler.yaml"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1"}
    document["kind"] = "KubeSchedulerConfiguration"
    document["extenders"] = [wirings.everything(ours.url())]
    file.write_text(yaml.safe_dump(document))

    words = ("doctor", "--scheduler-config", str(file), "--extender", ours.url(), "-o", "json")
    done = kubectl(ours, "slicewise", *words)

    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 0, done.stdout
    well = {each["topic"] for each in findings if each["level"] == "ok"}
    assert {"nodes", "scheduler", "extender", "quota", "pods and GPUs", "your rights"} <= well


def test_person_without_rights_is_told_so(ours: GpuCluster):
    stranger = ours.plane.kubeconfig("nobody-in-particular")

    done = kubectl(ours, "slicewise", "top", "--kubeconfig", str(stranger.path))

    assert done.returncode == 1
    assert "forbidden" in done.stderr
    assert done.stderr.count("\n") <= 2


@pytest.fixture
def reachable(gpu_cluster: GpuCluster) -> Iterator[str]:
    """An address of this machine that is not loopback, which API servers refuse to ask."""
    bed = gpu_cluster.bed
    hold = ["unshare", "--net", "sh", "-c", "echo apart; exec sleep infinity"]
    holder = bed.spawn("agent-link", hold)
    wait_until(lambda: "apart" in bed.tail("agent-link"), 20, lambda: "no namespace for the link")
    yield Links(bed).attach(holder).address
    bed.stop("agent-link")


def agent_pages(uid: str) -> Handler:
    """What the agent of a node with one busy GPU says."""
    owner = scenes.node_pod("busy", uid=uid, held={"main": [builders.piece(0, 30, 4096)]})
    loads = {"GPU-agented-0": scenes.load(scenes.process(7, memory=5000, cores=20))}
    reading = scenes.reading(loads, {7: [scenes.inside(owner, "main")]})
    gpu = scenes.device(0, uuid="GPU-agented-0")
    pages = {
        "/usage/gpus": msgspec.to_builtins(
            write_report(measure("agented", [gpu], [owner], reading), "")
        ),
        "/agent": {"version": __version__, "identity": "match", "ready": True},
    }

    async def handle(request: HttpRequest) -> Answer:
        page = pages.get(request.path)
        return HttpResponse(404, b"") if page is None else json_response(page)

    return handle


def test_agents_are_asked_through_the_real_api_server(gpu_cluster: GpuCluster, reachable: str):
    inventory = {"slicewise.io/gpus": write_gpus(builders.node("agented", 1))}
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10", "slicewise.io/gpu": "100"}
    addresses = [{"type": "InternalIP", "address": reachable}]
    record = {"containers": {"main": [[0, "GPU-agented-0", 30, 4096]]}, "node": "agented"}
    busy = part("busy", 30, 4096)
    busy["metadata"]["annotations"] = {"slicewise.io/allocation": json.dumps(record)}
    busy["spec"]["nodeName"] = "agented"
    with gpu_cluster.plane.api() as api:
        meta = {"name": "agented", "annotations": inventory}
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        api.create("/api/v1/nodes", {"metadata": meta, "status": status})
    gpu_cluster.apply(busy)
    [found] = gpu_cluster.pods("default")

    with ThreadedServer(
        agent_pages(found["metadata"]["uid"]), ServerSettings(host=reachable)
    ) as server:
        port = server.url.rpartition(":")[2]
        top = kubectl(gpu_cluster, "slicewise", "top", "--agent-port", port)
        doctor = kubectl(gpu_cluster, "slicewise", "doctor", "--agent-port", port)

    rows = [line.split() for line in top.stdout.splitlines()]
    # The record is written by hand: whether it is believed depends on what ran here before.
    name, number, _, compute, _, memory = rows[3][:6]
    assert (name, number, compute, memory) == ("gpu", "0", "20%", "5000"), top
    assert "agented: tells containers apart by size and age" in doctor.stdout
