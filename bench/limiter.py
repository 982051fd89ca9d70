"""What the limiter costs, in instructions: they repeat where times do not.

Counted by callgrind on the CUDA stand-in, whose own part is taken off. The stand-in runs nothing,
so no launch waits; launches that are timed are not among those counted, as their kernel is known.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slicewise_testbed.cuda import (
    MIB,
    UUID,
    Container,
    CudaMachine,
    GrantedGpu,
    compile_program,
    limiter,
)

_CALLS = 1000
# A share that is paced, yet with so much saved up that the thousand launches never wait.
_PACED = GrantedGpu(memory=8192 * MIB, cores=5000, burst_ns=999_000_000, scale=1000)
_MEMORY_ALONE = GrantedGpu(memory=8192 * MIB)


def measure_limiter_load() -> Iterator[tuple[str, float]]:
    """Instructions that the preload adds to a program without CUDA."""
    plain = _count(["/bin/true"], {}, "")
    yield "instructions", _count(["/bin/true"], {"LD_PRELOAD": str(limiter())}, "") - plain


def measure_limiter_calls() -> Iterator[tuple[str, float]]:
    """Instructions that one call costs beyond the driver's own."""
    with tempfile.TemporaryDirectory() as folder:
        machine = CudaMachine(Path(folder), [f"gpu {UUID} 16384", "engine off"])
        paced = Container(Path(folder) / "paced", (_PACED,))
        shares = Container(Path(folder) / "memory", (_MEMORY_ALONE,))
        for metric, container, loop, argument in (
            ("launch", paced, "loop_launch", ""),
            ("launch_unlimited", shares, "loop_launch", ""),
            ("alloc", paced, "loop_alloc", ""),
            ("free", paced, "loop_free", ""),
            ("free_4000_live", paced, "loop_free", "live"),
            ("info", paced, "loop_info", ""),
        ):
            command = [str(compile_program("calls")), argument]
            plain = _count(command, machine.environment(), loop)
            limited = _count(command, machine.environment(container), loop)
            yield metric, (limited - plain) / _CALLS


def _count(command: list[str], environment: dict[str, str], loop: str) -> int:
    """Instructions of a program, or of one of its functions with what that calls."""
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not on PATH: apt-get install valgrind")
    only = ["--collect-atstart=no", f"--toggle-collect={loop}"] if loop else []
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *only]
    done = subprocess.run(
        [*tool, *command], env=environment, capture_output=True, text=True, check=True
    )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if counted is None:
        sys.exit(f"callgrind counted nothing:\n{done.stderr}")
    return int(counted[1])
