"""How much memory a service holds after tenants have written all they may on their pods.

Pods of 200 KB of annotations go through the decoder, the reader and the ledger as a watch brings
them, in a process of its own. Half of them write under keys that nobody reads, the others more
than is read, or as much as is kept. All of them stay.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bench.cluster import half_full
from bench.load import memory
from slicewise.cli.render.logs import configure_plain_logs
from slicewise.kube.objects import PodBody
from slicewise.kube.watch import Seen
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings

PODS: Final = 100_000
LETTERS: Final = 200_000
_NODES: Final = 500
_ABSENT: Final[Any] = None


def measure_hostile() -> Iterator[tuple[str, float]]:
    """Resident memory before and after 100,000 such pods."""
    answer = subprocess.run(
        [sys.executable, "-m", "bench.hostile"], stdout=subprocess.PIPE, check=True
    )
    measured: dict[str, float] = json.loads(answer.stdout)
    yield from measured.items()


async def see_pods(count: int) -> dict[str, float]:
    """See so many pods, and tell the memory before, after, and at its highest."""
    state = LiveState(_ABSENT, StateSettings(quota=None, trust=None))
    state.ledger = half_full(_NODES).ledger
    decoder, padding = msgspec.json.Decoder(PodBody), "x" * LETTERS
    before = memory()["rss_mb"]
    for at in range(count):
        pod = state.reader.read_pod(decoder.decode(_write_pod(at, padding)))
        state.take_pods([Seen(pod, new=True)])
        if not at % 1000:
            state.snapshot()
            await asyncio.sleep(0)
    after = memory()
    return {
        "rss_mb": after["rss_mb"],
        "rss_before_mb": before,
        "peak_rss_mb": after["peak_rss_mb"],
        "pods": float(state.ledger.pods),
    }


def _write_pod(at: int, padding: str) -> bytes:
    """A pod as the API server sends it, with 200 KB of annotations of one kind or another."""
    name = f"{at:08}"
    match at % 4:
        case 0:
            annotations = {f"slicewise.io/{name}": name + padding}
        case 1:
            annotations = {"slicewise.io/models": name + padding}
        case 2:
            part = padding[: len(padding) // 100]
            annotations = {f"slicewise.io/shares.c{each}": name + part for each in range(100)}
        case _:
            annotations = {f"example.com/{name}": padding, "slicewise.io/policy": name * 50}
    node = {"nodeName": f"node-{at % _NODES:05}"} if at % 3 == 0 else {}
    body = {
        "metadata": {
            "name": name,
            "namespace": f"tenant-{at % 1000}",
            "uid": name,
            "resourceVersion": str(at + 1),
            "annotations": annotations,
            "labels": {f"slicewise.io/{name}": name},
        },
        "spec": {
            **node,
            "containers": [
                {"name": f"c{name}", "resources": {"limits": {"slicewise.io/cores": 1 + at % 99}}}
            ],
        },
    }
    return msgspec.json.encode(body)


if __name__ == "__main__":
    configure_plain_logs()
    print(json.dumps(asyncio.run(see_pods(PODS))))
