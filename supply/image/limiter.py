"""The library that holds containers to their shares, built for the image's machines."""

import platform
import shutil
import subprocess
from pathlib import Path

from image.recipe import Architecture

NAME = "libslicewise-limit.so"
# No times, no paths and no symbols of temporary files: equal sources give equal bytes.
_FLAGS = "-O2 -s -frandom-seed=slicewise"


def find_compiler(architecture: Architecture) -> str | None:
    """A compiler for such machines; None when this one has none."""
    if platform.machine() == architecture.machine:
        return shutil.which("cc")
    return shutil.which(f"{architecture.machine}-linux-gnu-gcc")


def build_limiter(source: Path, architecture: Architecture, cache: Path) -> Path | None:
    """The built library; None where it cannot be compiled, and no container is limited."""
    compiler = find_compiler(architecture)
    if compiler is None or not source.exists():
        return None
    out = (cache / f"limiter-{architecture.name}").resolve()
    command = ["make", "--silent", f"CC={compiler}", f"OUT={out}", f"CFLAGS={_FLAGS}"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"make in {source}: {done.stderr.strip()}")
    return out / NAME
