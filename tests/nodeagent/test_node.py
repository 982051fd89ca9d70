"""The agent's pages over HTTP, on a simulated driver and a /proc of its own."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.audit.test_auditor import FakeKubelet
from nodeagent.test_node_pods import local, record
from nodeagent.test_pages import read_series
from nodeagent.usage.test_cgroups import LAYOUT, put
from slicewise.httpd import ServerSettings
from slicewise.kube.watch import Gone, Seen
from slicewise.kubelet.holders import Holder
from slicewise.nodeagent.audit.auditor import Auditor, EvidenceCollector
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.pages import AgentPages
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageMeter, UsageSampler
from slicewise.nvml.simulated import SimulatedDriver
from slicewise_playground.threaded_server import ThreadedServer

CORES = "slicewise.io/cores"
UID = "3f8c1b52-9d4e-4c0a-8f0e-5a7d2b6c1e90"
ID = "c3" * 32


@dataclass
class Stand:
    """A node's pages, and what stands behind them."""

    url: str
    pods: NodePods
    sampler: UsageSampler
    gpus: Path
    proc: Path
    kubelet: FakeKubelet

    def describe(self, *processes: dict) -> None:
        """Let these processes run on the second GPU."""
        gpus = [{"model": "NVIDIA A10", "memory": 23028, "uuid": f"GPU-{at}"} for at in range(2)]
        gpus[1]["processes"] = list(processes)
        self.gpus.write_text(json.dumps({"gpus": gpus}))
        self.sampler.sample()

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return response.read()

    def used(self) -> dict[str, float]:
        return {
            dict(labels)["pod"]: value
            for (name, labels), value in read_series(self.get("/metrics")).items()
            if name == "slicewise_container_gpu_memory_used_bytes"
        }


@pytest.fixture
def stand(tmp_path) -> Iterator[Stand]:
    described, proc = tmp_path / "gpus.yaml", tmp_path / "proc"
    described.write_text(
        '{"gpus": [{"model": "NVIDIA A10", "memory": 23028, "uuid": "GPU-0"},'
        ' {"model": "NVIDIA A10", "memory": 23028, "uuid": "GPU-1"}]}'
    )
    proc.mkdir()
    driver = SimulatedDriver(described)
    hardware = driver.hardware()
    pods, kubelet = NodePods("n0"), FakeKubelet()
    pods.set_gpus(hardware.gpus, hardware.links)
    sampler = UsageSampler(driver, ProcessTable(proc), interval_seconds=3600)
    views = EvidenceCollector(
        pods=pods,
        sampler=sampler,
        kubelet=kubelet,
        specs=None,
        resources=frozenset({CORES}),
        served=frozenset({CORES}),
    )
    pages = AgentPages(UsageMeter(pods, sampler), auditor=Auditor(views.collect, pause_seconds=0))
    with ThreadedServer(pages.router.handle, ServerSettings(port=0)) as server:
        yield Stand(server.url, pods, sampler, described, proc, kubelet)


def admit(stand: Stand) -> None:
    pod = local(UID, record(1, "GPU-1"))
    stand.pods.apply([Seen(pod, new=True)])
    stand.kubelet.holders = [Holder("default", UID, "c0", {CORES: frozenset({"1"})})]


def test_a_container_is_followed_from_its_allocation_to_its_end(stand):
    stand.describe()
    before = stand.used()
    admit(stand)
    idle = stand.used()
    put(stand.proc, 7, LAYOUT.text(UID, ID))
    stand.describe({"pid": 7, "memory": 512, "utilization": 40})
    busy = stand.used()
    stand.describe()
    stand.pods.apply([Gone(UID, 9)])

    assert (before, idle, busy, stand.used()) == ({}, {UID: 0}, {UID: 512 << 20}, {})


def test_usage_tells_the_gpus_of_a_container(stand):
    admit(stand)
    put(stand.proc, 7, LAYOUT.text(UID, ID))
    stand.describe({"pid": 7, "memory": 512, "utilization": 40})
    (device,) = json.loads(stand.get("/usage"))["usage"][UID]["stat"]["c0"]["dev"]

    assert (device["card_idx"], device["gpu"], device["mem"], device["pids"]) == ("1", 40, 512, [7])
    assert "GPU1 (pids: [7]" in json.loads(stand.get("/graph"))["graph"]


def test_an_audit_is_clean_until_somebody_strays(stand):
    admit(stand)
    put(stand.proc, 7, LAYOUT.text(UID, ID))
    stand.describe({"pid": 7, "memory": 512})
    clean = json.loads(stand.get("/audit"))
    put(stand.proc, 8, "0::/user.slice\n", command="notebook")
    stand.describe({"pid": 7, "memory": 512}, {"pid": 8, "memory": 100})
    found = json.loads(stand.get("/audit"))

    assert clean == {"node": "n0", "verdict": "clean", "findings": [], "gaps": []}
    assert [each["kind"] for each in found["findings"]] == ["Stray"]
    assert "notebook runs outside every pod" in found["findings"][0]["what"]
