"""What the node agent costs: time before a container starts, memory, idle work, API calls."""

import asyncio
from collections.abc import Iterator
from typing import Final

import numpy as np

from bench.gpunode import KINDS, GpuNode, run_node

PODS: Final = 100
STARTS: Final = 300
FLAGGED: Final = tuple(flagged for _, flagged in KINDS.values())
_IDLE_SECONDS: Final = 20.0
# Longer than any write that an agent puts off.
_SETTLE_SECONDS: Final = 5.0


def measure_prestart() -> Iterator[tuple[str, float]]:
    """PreStartContainer of new pods, one leaving for each that comes, with 100 on the node."""
    seconds = asyncio.run(_start_pods())
    yield "p50_ms", 1e3 * float(np.percentile(seconds, 50))
    yield "p99_ms", 1e3 * float(np.percentile(seconds, 99))


def measure_memory() -> Iterator[tuple[str, float]]:
    """Resident memory of the process with 16 GPUs and 100 containers."""
    yield "rss_mb", asyncio.run(_fill_and_weigh()) / 1e6


def measure_idle() -> Iterator[tuple[str, float]]:
    """Processor time with 100 containers that nothing happens to, in percent of one core."""
    yield "cpu_percent", asyncio.run(_fill_and_wait())


def measure_calls() -> Iterator[tuple[str, float]]:
    """Requests to the API server for each pod, and for each whose system needs no flag."""
    flagged, plain = asyncio.run(_count_calls())
    yield "count", flagged
    yield "without_flag", plain


async def _start_pods() -> list[float]:
    async with run_node() as node:
        names = await _fill(node)
        seconds = []
        for _ in range(STARTS):
            node.remove_pod(names.pop(0))
            name, took = await node.add_pod()
            names.append(name)
            seconds.append(took)
        return seconds


async def _fill(node: GpuNode) -> list[str]:
    return [(await node.add_pod())[0] for _ in range(PODS)]


async def _fill_and_weigh() -> int:
    async with run_node() as node:
        await _fill(node)
        # One answer to everybody who asks belongs to the work of an agent.
        await asyncio.to_thread(node.ask, "/metrics")
        await asyncio.sleep(_SETTLE_SECONDS)
        return node.resident_bytes()


async def _fill_and_wait() -> float:
    async with run_node() as node:
        await _fill(node)
        await asyncio.sleep(_SETTLE_SECONDS)
        before = node.cpu_seconds()
        await asyncio.sleep(_IDLE_SECONDS)
        return 100 * (node.cpu_seconds() - before) / _IDLE_SECONDS


async def _count_calls() -> tuple[float, float]:
    async with run_node() as node:
        await asyncio.sleep(_SETTLE_SECONDS)
        before = node.calls()
        names = await _fill(node)
        await asyncio.sleep(_SETTLE_SECONDS)
        calls = node.calls() - before
        flagged = [name for at, name in enumerate(names) if FLAGGED[at % len(FLAGGED)]]
        plain = [name for at, name in enumerate(names) if not FLAGGED[at % len(FLAGGED)]]
        own = {name: calls.pop(f"default/{name}", 0) for name in names}
        # What is not about one pod is shared out among all of them.
        rest = calls.total() / len(names)
        return (
            rest + sum(own[name] for name in flagged) / len(flagged),
            rest + sum(own[name] for name in plain) / len(plain),
        )
