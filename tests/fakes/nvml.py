"""The C library that stands for NVIDIA's, built when a test first needs it."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@cache
def build_library() -> Path:
    """The built `libnvidia-ml.so.1`; the folder it is in fits LD_LIBRARY_PATH."""
    compiler = os.environ.get("CC", "cc")
    for tool in (compiler, "make"):
        if shutil.which(tool) is None:
            pytest.fail(f"{tool} is not on PATH: install a C compiler and make, or set CC")
    folder = _ROOT / "out" / "native" / "nvml"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(
            ["make", "-C", str(_ROOT / "native" / "nvml"), f"OUT={folder}"],
            capture_output=True,
            text=True,
            check=False,
        )
    if built.returncode != 0:
        pytest.fail(f"make -C native/nvml failed:\n{built.stdout}{built.stderr}")
    return folder / "libnvidia-ml.so.1"
