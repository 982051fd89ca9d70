"""A host with the files of an NVIDIA driver: real shared libraries that do nothing, and tools."""

import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

VERSION = "550.54.15"
SMI = "#!/bin/sh\necho fake nvidia-smi $*\n"
# Of each library, the name that programs load it by.
LIBRARIES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-eglcore": "libnvidia-eglcore.so.{version}",
}


def write_library(path: Path, soname: str | None) -> None:
    """A shared library of 64 bits with this soname."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_link(soname))
    path.chmod(0o755)


@cache
def _link(soname: str | None) -> bytes:
    named = [] if soname is None else [f"-Wl,-soname,{soname}"]
    with tempfile.NamedTemporaryFile() as out:
        words = ["cc", "-shared", "-nostdlib", *named, "-o", out.name, "-x", "c", "/dev/null"]
        subprocess.run(words, check=True, capture_output=True)
        return Path(out.name).read_bytes()


def write_narrow_library(path: Path) -> None:
    """The head of a shared library of 32 bits, which is all that is read of one without names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    path.write_bytes(identity + struct.pack("<HHIIIIIHHH", 3, 3, 1, 0, 52, 0, 0, 52, 32, 0))


def make_driver(root: Path, version: str = VERSION, folder: str = "usr/lib64") -> Path:
    """The root of a host on which this driver is installed."""
    for stem, soname in LIBRARIES.items():
        name = soname.format(version=version)
        write_library(root / folder / f"{stem}.so.{version}", name)
        link = root / folder / name
        if not link.exists():
            link.symlink_to(f"{stem}.so.{version}")
    smi = root / "usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True, exist_ok=True)
    smi.write_text(SMI)
    smi.chmod(0o755)
    return root
