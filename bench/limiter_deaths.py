"""How long processes of a container wait for one that was killed, at the worst.

In real time on the CUDA stand-in: the victim is killed while it holds what others want, in the
middle of a refusal or waiting for GPU time. What a launch waits for by its own share is taken off.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from slicewise_testbed.cuda import (
    MIB,
    SUCCESS,
    UUID,
    Container,
    CudaClient,
    CudaMachine,
    GrantedGpu,
    run_client,
)

_ALLOC_KILLS, _LAUNCH_KILLS = 40, 5
# Every launch is charged 5 ms of GPU time, for which a share of 1 percent waits 500 ms.
_SLOW = GrantedGpu(cores=100, scale=100 << 16, burst_ns=1_000_000)
_USUAL_MS = 500


def measure_limiter_deaths() -> Iterator[tuple[str, float]]:
    """Milliseconds until a survivor has what a killed process held or was first in line for."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        machine = CudaMachine(folder, [f"gpu {UUID} 16384", "kernel k 50"])

        def start(container: Container) -> CudaClient:
            return stack.enter_context(run_client(machine.environment(container))).start()

        container = Container(folder / "memory")
        survivor = start(container)
        waits = [_wait_for_memory(start(container), survivor) for _ in range(_ALLOC_KILLS)]
        yield "alloc_wait_ms", max(waits)
        waits = []
        for number in range(_LAUNCH_KILLS):
            container = Container(folder / f"time{number}", (_SLOW,))
            waits.append(_wait_for_time(start(container), start(container)) - _USUAL_MS)
        yield "launch_wait_ms", max(0.0, *waits)


def _wait_for_memory(victim: CudaClient, survivor: CudaClient) -> float:
    victim.call("alloc", 60 * MIB)
    # Refused only after it has looked for memory that others may have left.
    victim.send("alloc", 60 * MIB)
    victim.kill()
    began = time.monotonic()
    result = number = -1
    while result != SUCCESS:
        result, number = survivor.call("alloc", 60 * MIB)
    waited = 1000 * (time.monotonic() - began)
    survivor.call("free", number)
    return waited


def _wait_for_time(victim: CudaClient, survivor: CudaClient) -> float:
    """How long a launch waits behind a process that is killed while it waits."""
    # The first launch of all goes at once, and the second waits for what the first was charged.
    victim.send("launch", 2, -1, "k")
    time.sleep(_USUAL_MS / 10_000)
    victim.kill()
    began = time.monotonic()
    survivor.call("launch", 1, -1, "k")
    return 1000 * (time.monotonic() - began)
