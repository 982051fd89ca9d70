"""What a process tree holds of the machine, taken down exactly, so that its end can be checked."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NET_TABLES = ("unix", "tcp", "tcp6", "udp", "udp6")


@dataclass(frozen=True, slots=True)
class Traces:
    """Processes by id and start time, and the inodes of their namespaces and sockets."""

    processes: frozenset[tuple[int, str]]
    networks: frozenset[int]
    sockets: frozenset[int]


def take_down(root: int) -> Traces:
    """What the process and all its descendants hold, beyond what this process has too."""
    pids = {root, *_descendants(root)}
    networks = {inode for pid in pids if (inode := _network(pid))} - {_network(os.getpid())}
    sockets = {inode for pid in pids for inode in _sockets(pid)}
    processes = {(pid, _start(pid)) for pid in pids}
    return Traces(frozenset(processes), frozenset(networks), frozenset(sockets))


def remaining(traces: Traces) -> dict[str, set[object]]:
    """What of it is still there, by kind; empty kinds are left out."""
    alive = {int(path.name) for path in _processes()}
    found: dict[str, set[object]] = {
        "processes": {(p, s) for p, s in traces.processes if p in alive and _start(p) == s},
        "networks": set(traces.networks & {_network(pid) for pid in alive}),
        "sockets": set(traces.sockets & _open_sockets()),
    }
    return {kind: left for kind, left in found.items() if left}


def mounts_naming(text: str) -> set[str]:
    """The mounts, in whatever namespace, that mention this text."""
    lines: set[str] = set()
    for path in _processes():
        with suppress(OSError):
            lines.update((path / "mountinfo").read_text().splitlines())
    return {line for line in lines if text in line}


def cgroups_named(name: str) -> set[Path]:
    """The control groups of this name."""
    root = Path("/sys/fs/cgroup")
    return {path for path in (root / name, *root.glob(f"*/{name}")) if path.is_dir()}


def _processes() -> Iterator[Path]:
    return (path for path in _PROC.iterdir() if path.name.isdigit())


def _descendants(root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for path in _processes():
        with suppress(OSError):
            status = (path / "status").read_text()
            parent = int(re.search(r"^PPid:\t(\d+)", status, re.M)[1])
            children.setdefault(parent, []).append(int(path.name))
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        yield from below
        waiting += below


def _start(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone"


def _network(pid: int) -> int:
    try:
        return (_PROC / str(pid) / "ns" / "net").stat().st_ino
    except OSError:
        return 0


def _sockets(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for path in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(path)):
                    yield int(match[1])


def _open_sockets() -> set[int]:
    words = (
        word
        for table in _NET_TABLES
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]
        for word in line.split()
    )
    return {int(word) for word in words if word.isdigit()}
