"""What it costs a start to verify its record and to add up its GPUs."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.dialects.shared.signed_record import SIGNATURE, write_signed_record
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Gone, Seen
from slicewise.model import Allocation, Container, ContainerAllocation, Gpu, MiB, Node, Pod, cut
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import AllocationReader, NodeContext
from slicewise.nodeagent.plugin.grant_book import GrantBook
from slicewise.nodeagent.plugin.start_gate import StartGate
from slicewise.nvml.driver import GpuDevice
from slicewise.trust import PublicKeys, SigningKey, TrustStore

PODS: Final = 100
STARTS: Final = 500
_KEY: Final = SigningKey(bytes(32))
_GPUS: Final = tuple(Gpu(at, f"GPU-{at}", "NVIDIA A100", MiB(81920), at) for at in range(16))
_NODE: Final = Node("bench", _GPUS)
_LIMITS: Final = {"slicewise.io/cores": 5, "slicewise.io/memory": 4096}


def measure_checks() -> Iterator[tuple[str, float]]:
    """Reading a new pod, verifying its record and adding up, with 100 pods started before."""
    checked = asyncio.run(_start_pods(TrustStore(PublicKeys({_KEY.id: _KEY.public}))))
    yield "p50_ms", 1e3 * float(np.percentile(checked, 50))
    yield "p99_ms", 1e3 * float(np.percentile(checked, 99))


async def _start_pods(trust: TrustStore) -> list[float]:
    book, synced = GrantBook(), asyncio.Event()
    synced.set()
    pods = NodePods("bench", trust=trust, started=book.slices)
    pods.set_gpus([GpuDevice(gpu, f"0000:{gpu.index:02x}:00.0") for gpu in _GPUS])
    context = NodeContext(_NODE, GpuManagerPaths(), {})

    async def read_pod(*_: str) -> None:
        return None

    reader = AllocationReader(DEFAULT, pods, lambda: context, read_pod=read_pod)
    gate = StartGate(pods, book, lambda: _NODE, synced=synced)
    seconds = []
    for at in range(PODS + STARTS):
        local = _make_pod(at)
        began = time.thread_time()
        pods.apply([Seen(local, new=True)])
        held = reader.read(local)
        assert held is not None
        await gate.admit(held, local.pod.containers[0])
        seconds.append(time.thread_time() - began)
        running = replace(local, containers=(LocalContainer("main", id="x", running=True),))
        pods.apply([Seen(running, new=False)])
        if at >= PODS:
            book.drop(f"u{at - PODS}")
            pods.apply([Gone(f"u{at - PODS}", at)])
    return seconds[PODS:]


def _make_pod(at: int) -> LocalPod:
    container = Container("main", _LIMITS)
    pod = Pod(f"u{at}", "bench", f"p{at}", (container,), node="bench")
    share = DEFAULT.read_request(pod).containers[0].shares[0]
    piece = cut(share, _GPUS[at % len(_GPUS)])
    allocation = Allocation("bench", (ContainerAllocation("main", (piece,)),))
    text = write_signed_record(allocation, _NODE, epoch=1, now_ns=at)
    marks = {ALLOCATION: text, SIGNATURE: _KEY.sign(pod.uid, text)}
    return LocalPod(replace(pod, annotations=marks), (LocalContainer("main"),))
