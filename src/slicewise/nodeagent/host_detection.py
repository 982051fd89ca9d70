"""What is detected on the host: its runtime's socket, cgroup version, and the kubelet's driver.

Every path begins at a root that is given, so that a container may look at its host's.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

DRIVERS: Final = ("cgroupfs", "systemd")
KUBELET_CONFIG: Final = "var/lib/kubelet/config.yaml"
# Docker brings a containerd of its own, so its two sockets are looked for first.
_SOCKETS: Final = (
    "var/run/dockershim.sock",
    "var/run/cri-dockerd.sock",
    "run/cri-dockerd.sock",
    "var/run/containerd/containerd.sock",
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "var/run/crio/crio.sock",
    "run/crio/crio.sock",
)
_TREES: Final = {"kubepods.slice": "systemd", "kubepods": "cgroupfs", "kubelet.slice": "systemd"}
# Of the hierarchies of version 1, the first that is there.
_HIERARCHIES: Final = ("memory", "cpu,cpuacct", "cpu", "pids", "systemd")


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Which version of cgroups the host uses, and where containers' processes are listed."""

    version: int
    root: Path


@dataclass(frozen=True, slots=True)
class DetectedHost:
    """What was found; None where nothing was."""

    runtime: Path | None
    cgroup_driver: str | None
    cgroups: CgroupLayout


def detect_host(root: Path = Path("/"), kubelet_config: Path | None = None) -> DetectedHost:
    """Everything that can be detected."""
    kubelet = _read_kubelet(kubelet_config or root / KUBELET_CONFIG)
    cgroups = detect_cgroups(root)
    return DetectedHost(
        _find_runtime(root, kubelet.get("containerRuntimeEndpoint")),
        _find_driver(cgroups, kubelet.get("cgroupDriver")),
        cgroups,
    )


def detect_cgroups(root: Path = Path("/")) -> CgroupLayout:
    """Version 2 where the one hierarchy has controllers, otherwise version 1."""
    base = root / "sys" / "fs" / "cgroup"
    if (base / "cgroup.controllers").exists():
        return CgroupLayout(2, base)
    found = (base / name for name in _HIERARCHIES if (base / name).is_dir())
    return CgroupLayout(1, next(found, base / _HIERARCHIES[0]))


def _read_kubelet(path: Path) -> dict[str, object]:
    # Read as what it is: a search for the word would find the path of a systemd file as well.
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _find_runtime(root: Path, named: object) -> Path | None:
    if isinstance(named, str) and named:
        path = Path(named.removeprefix("unix://"))
        if path.is_absolute() and _is_socket(root / path.relative_to("/")):
            return path
    return _first_socket(root, _SOCKETS)


def _first_socket(root: Path, names: Iterable[str]) -> Path | None:
    return next((Path("/") / name for name in names if _is_socket(root / name)), None)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _find_driver(cgroups: CgroupLayout, named: object) -> str | None:
    if isinstance(named, str) and named.lower() in DRIVERS:
        return named.lower()
    return next((driver for name, driver in _TREES.items() if (cgroups.root / name).is_dir()), None)
