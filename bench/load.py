"""How long a whole cluster takes to load at start, and how much memory it then holds.

The API is another process, and so is the one that loads: its memory is all its own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.replica import KEY, MEMORY, SHARE
from slicewise.cli.render.logs import configure_plain_logs
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings

NODES: Final = 5000
PODS: Final = 100_000


def measure_load() -> Iterator[tuple[str, float]]:
    """5,000 nodes and 100,000 pods over real HTTP, from the first request to being in sync."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.replica", str(NODES), str(PODS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as replica:
        assert replica.stdin is not None
        assert replica.stdout is not None
        url, size = replica.stdout.readline().split()
        try:
            answer = subprocess.run(
                [sys.executable, "-m", "bench.load", url], stdout=subprocess.PIPE, check=True
            )
        finally:
            replica.stdin.close()
    measured: dict[str, float] = json.loads(answer.stdout)
    yield from measured.items()
    yield "listed_mb", int(size) / 1e6


async def load(url: str, *, held: bool = True) -> dict[str, float]:
    """Load the cluster and check that every pod is counted, to the MiB."""
    async with Client(Access(url)) as client:
        state = LiveState(client, StateSettings(verify_seconds=None if held else 0.0))
        assert state.trust is not None
        # An extender knows its own signatures by their codes.
        state.trust.store.hold([KEY] if held else ())
        began, worked = time.monotonic(), time.process_time()
        await state.start()
        seconds, work = time.monotonic() - began, time.process_time() - worked
        check(state)
        await state.stop()
        return {"seconds": seconds, "cpu_seconds": work, **memory()}


def check(state: LiveState) -> None:
    """Raise unless the ledger says what the replica made up."""
    if state.problems():
        raise AssertionError(f"the ledger reports {state.problems()[0]}")
    found = list(state.snapshot())
    held = sum(len(node.holdings) for node in found)
    if (len(found), held) != (NODES, PODS):
        raise AssertionError(f"{len(found)} nodes and {held} pods are counted")
    for node in found:
        if sum(node.used_memory) != 12 * SHARE or max(node.used_memory) > MEMORY:
            raise AssertionError(f"{node.node.name} holds {node.used_memory} MiB")


def memory() -> dict[str, float]:
    """Resident memory of this process now and at its highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if line.startswith("Vm"))
    return {
        "rss_mb": int(facts["VmRSS"].split()[0]) * 1024 / 1e6,
        "peak_rss_mb": int(facts["VmHWM"].split()[0]) * 1024 / 1e6,
    }


if __name__ == "__main__":
    configure_plain_logs()
    print(json.dumps(asyncio.run(load(sys.argv[1]))))
