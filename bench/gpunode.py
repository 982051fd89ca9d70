"""A GPU node under the real agent: simulated GPUs, an embedded API, a kubelet over sockets."""

import asyncio
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.kubelet import Kubelet
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.model import (
    Allocation,
    Container,
    ContainerAllocation,
    Gpu,
    MiB,
    Node,
    Pod,
    cut,
)
from slicewise.state.trust import TRUST_CONFIGMAP
from slicewise.trust import SigningKey, TrustDocument, write_trust
from slicewise_playground.cluster import Playground
from slicewise_testbed.ports import free_port

NODE: Final = "bench"
GPUS: Final = 16
MEMORY: Final = MiB(81920)
SECONDS: Final = 60.0
KEY: Final = SigningKey(bytes(32))
# Each system's words, and whether it looks for a flag on the pod once the container has its GPU.
KINDS: Final[Mapping[str, tuple[Mapping[str, int], bool]]] = {
    "slicewise": ({"slicewise.io/cores": 2, "slicewise.io/memory": 256}, False),
    "tkestack": ({"nvidia.com/vcuda-core": 2, "nvidia.com/vcuda-memory": 256}, True),
    "gpushare": ({"aliyun.com/gpu-mem": 1}, True),
    "elastic": ({"elasticgpu.io/gpu-core": 2}, False),
}
CARRIERS: Final = (
    "slicewise.io/cores",
    "nvidia.com/vcuda-core",
    "aliyun.com/gpu-mem",
    "elasticgpu.io/gpu-core",
)


class GpuNode:
    """One node under measurement."""

    def __init__(self, folder: Path, api: Playground, kubelet: Kubelet) -> None:
        self.folder = folder
        self.api = api
        self.kubelet = kubelet
        self.port = free_port()
        self.pid = 0
        self._node = Node(
            NODE,
            tuple(Gpu(at, _uuid(at), "NVIDIA A100-SXM4-80GB", MEMORY, at) for at in range(GPUS)),
        )
        self._count = 0

    async def add_pod(self) -> tuple[str, float]:
        """The name of a new pod that is bound, admitted and started, and what PreStart took."""
        at, self._count = self._count, self._count + 1
        limits = list(KINDS.values())[at % len(KINDS)][0]
        name = f"pod-{at:04}"
        amounts = {key: str(value) for key, value in limits.items()}
        container = {"name": "main", "image": "busybox", "resources": {"limits": amounts}}
        made = self.api.create(
            "pods", {"metadata": {"name": name}, "spec": {"containers": [container]}}
        )
        record = self._record(made["metadata"]["uid"], name, limits)
        self.api.bind(name, NODE, **record)
        resource = next(each for each in CARRIERS if each in limits)
        ids = await self.kubelet.admit(name, "main", resource, limits[resource])
        return name, await self.kubelet.pre_start(resource, ids)

    def remove_pod(self, name: str) -> None:
        """The pod has ended and is gone."""
        self.kubelet.remove(name)
        self.api.delete("pods", name, grace=0)

    def ask(self, path: str) -> bytes:
        """What the agent answers to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: bytes = answer.read()
        return text

    def calls(self) -> Counter[str]:
        """The requests that the API has had of the agent, by what they were about."""
        return self.api.requests()

    def cpu_seconds(self) -> float:
        """The processor time the agent has had."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """The memory the agent holds."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def _record(self, uid: str, name: str, limits: Mapping[str, int]) -> dict[str, Any]:
        pod = Pod(uid, "default", name, (Container("main", limits),))
        request = DEFAULT.read_request(pod)
        gpu = self._node.gpus[self._count % GPUS]
        pieces = tuple(cut(share, gpu) for share in request.containers[0].shares)
        allocation = Allocation(NODE, (ContainerAllocation("main", pieces),))
        now_ns = time.time_ns()
        record = DEFAULT.record_allocation(pod, request, allocation, self._node, now_ns=now_ns)
        text = write_signed_record(allocation, self._node, epoch=1, now_ns=now_ns)
        signed = {ALLOCATION: text, SIGNATURE: KEY.sign(uid, text)}
        return {"annotations": {**record.annotations, **signed}, "labels": dict(record.labels)}


def _uuid(at: int) -> str:
    return f"GPU-5e1ec7ed-0000-4000-8000-{at:012}"


@asynccontextmanager
async def run_node() -> AsyncIterator[GpuNode]:
    """A node whose agent is ready, until the block ends."""
    with TemporaryDirectory(prefix="sw-") as text, Playground() as api:
        folder = Path(text)
        api.create("nodes", {"metadata": {"name": NODE}})
        namespace, name = TRUST_CONFIGMAP
        data = write_trust(TrustDocument({KEY.id: KEY.public}))
        api.create(
            "configmaps", {"metadata": {"name": name, "namespace": namespace}, "data": dict(data)}
        )
        kubelet = Kubelet(folder / "kubelet")
        await kubelet.start()
        node = GpuNode(folder, api, kubelet)
        agent = await _start_agent(node)
        node.pid = agent.pid
        try:
            await kubelet.wait_for(CARRIERS, SECONDS)
            yield node
        finally:
            agent.terminate()
            await agent.wait()
            await kubelet.stop()


async def _start_agent(node: GpuNode) -> asyncio.subprocess.Process:
    folder = node.folder
    gpus = [
        {"model": "NVIDIA A100-SXM4-80GB", "memory": MEMORY, "uuid": _uuid(at)}
        for at in range(GPUS)
    ]
    (folder / "gpus.yaml").write_text(json.dumps({"gpus": gpus}))
    (folder / "dev").mkdir()
    for name in (*(f"nvidia{at}" for at in range(GPUS)), "nvidiactl", "nvidia-uvm"):
        (folder / "dev" / name).touch()
    flags = {
        "--node-name": NODE,
        "--kubeconfig": node.api.write_kubeconfig(folder / "kubeconfig"),
        "--nvml": f"simulated:{folder / 'gpus.yaml'}",
        "--identity": "cdi",
        "--device-plugins": node.kubelet.plugins_folder,
        "--pod-resources": node.kubelet.pod_resources,
        "--cdi": folder / "cdi",
        "--state": folder / "state",
        "--virtual-manager-path": folder / "vm",
        "--driver-volumes": folder / "vdriver",
        "--address": f"127.0.0.1:{node.port}",
        "--dev": folder / "dev",
    }
    words = [f"{name}={value}" for name, value in flags.items()]
    program = str(Path(sys.executable).with_name("slicewise"))
    with (folder / "agent.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            program, "agent", *words, stdout=log, stderr=log
        )
