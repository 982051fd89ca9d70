"""The parts that come from the distribution: runc, CNI plugins, static busybox, iproute2, nftables.

Root gets a missing part installed; anyone else gets one line that says what to install.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slicewise_testbed.errors import TestbedError

_SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_CNI_NEEDED = ("ptp", "host-local", "loopback")


@dataclass(frozen=True, slots=True)
class Package:
    """One Debian package and the test for what it brings."""

    name: str
    find: Callable[[], Path | None]


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=_SBIN)
    return Path(found) if found else None


def _cni_folder() -> Path | None:
    for folder in _CNI_FOLDERS:
        if all(os.access(folder / plugin, os.X_OK) for plugin in _CNI_NEEDED):
            return folder
    return None


def _static_busybox() -> Path | None:
    found = _program("busybox")
    # A dynamic busybox would find no loader in an image that holds nothing else.
    return found if found and b"/ld-linux" not in found.read_bytes()[:4096] else None


RUNC = Package("runc", lambda: _program("runc"))
CNI = Package("containernetworking-plugins", _cni_folder)
BUSYBOX = Package("busybox-static", _static_busybox)
IPROUTE = Package("iproute2", lambda: _program("ip"))
ENTER = Package("util-linux", lambda: _program("nsenter"))
NFTABLES = Package("nftables", lambda: _program("nft"))
PACKAGES = (RUNC, CNI, BUSYBOX, IPROUTE, ENTER, NFTABLES)


def missing_packages() -> tuple[str, ...]:
    """The packages whose content is not on this machine."""
    return tuple(package.name for package in PACKAGES if package.find() is None)


def ensure_packages(say: Callable[[str], None]) -> None:
    """Every package present, installed if that is in our power."""
    if not (missing := missing_packages()):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(missing)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        # Package lists may be absent or stale on a fresh machine; a first failure refreshes them.
        for command in (install, ["apt-get", "update", "-qq"], install):
            done = subprocess.run(command, env=environment, capture_output=True, check=False)
            if command is install and done.returncode == 0:
                break
    if missing := missing_packages():
        raise TestbedError(f"real nodes need: apt-get install {' '.join(missing)}")


def locate(package: Package) -> Path:
    """Where the content of this package is."""
    if found := package.find():
        return found
    raise TestbedError(f"real nodes need: apt-get install {package.name}")
