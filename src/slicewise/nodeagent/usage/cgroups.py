"""From a process on the host to the container it runs in, by the cgroup the kernel shows for it.

Nothing is guessed from names that a pod can choose: what stands outermost in a path was put
there by the kubelet or the runtime, and is told first.
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# A UID of the API server, or the hash that stands in for one on static pods.
_UID: Final = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD: Final = re.compile(rf"pod({_UID})|(?:.*-)?pod({_UID})\.slice(?::[\w-]+:([0-9a-f]{{64}}))?")
_CONTAINER: Final = re.compile(r"(?:([a-z][a-z0-9-]*)-)?([0-9a-f]{64})(?:\.scope)?")
_DELETED: Final = " (deleted)"
_MOST_BYTES: Final = 1 << 16
# The kubelet's own root, kubepods and the class of service; some start a level or two deeper.
_DEEPEST: Final = 6


@dataclass(frozen=True, slots=True)
class CgroupRef:
    """A pod's UID and a container's id, as one part of a cgroup path names them."""

    pod: str | None
    container: str | None


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A running process: its command, and where it runs, outermost cgroup first."""

    pid: int
    started: int
    command: str
    refs: tuple[CgroupRef, ...]


def read_cgroup_refs(text: str) -> tuple[CgroupRef, ...]:
    """The containers that a /proc/PID/cgroup names, outermost first; none for a host process."""
    best: tuple[CgroupRef, ...] = ()
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        refs = tuple(walk_path(parts[2]))
        # With cgroup v1 some hierarchies may not be used; one that names a container knows most.
        if any(ref.container for ref in refs):
            return refs
        best = best or refs
    return best


def walk_path(path: str) -> Iterator[CgroupRef]:
    """The containers along one cgroup path, outermost first."""
    pod: str | None = None
    for segment in path.removesuffix(_DELETED).split("/"):
        if found := _POD.fullmatch(segment):
            if pod is not None:
                yield CgroupRef(pod, None)
            # systemd reads a dash as a step into a slice, so the kubelet writes underscores there.
            pod = (found[1] or found[2]).replace("_", "-")
            if found[3]:
                yield CgroupRef(pod, found[3])
                pod = None
        # cri-o keeps each container's monitor beside it, under the container's own id.
        elif (found := _CONTAINER.fullmatch(segment)) and not (found[1] or "").endswith("conmon"):
            yield CgroupRef(pod, found[2])
            pod = None
    if pod is not None:
        yield CgroupRef(pod, None)


class PodCgroups:
    """Finds the cgroups of pods and of their containers in the kernel's tree.

    What stands inside a pod's cgroup is its tenant's, so that a pod is never looked for there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._parents: list[Path] = []

    def find_pod(self, uid: str) -> Path | None:
        """The cgroup of the pod with this UID; None where it has none yet or any more."""
        for parent in self._parents:
            for name in (f"pod{uid}", f"{parent.stem}-pod{uid.replace('-', '_')}.slice"):
                if (parent / name).is_dir():
                    return parent / name
        found = next((path for known, path in self._walk() if known == uid), None)
        if found is not None and found.parent not in self._parents:
            self._parents.append(found.parent)
        return found

    def find_containers(self, pod: Path) -> dict[str, Path]:
        """The cgroups of a pod's containers, by the runtime's ids; its sandbox is among them."""
        return {
            found[2]: Path(entry)
            for entry in _list_folders(pod)
            if (found := _CONTAINER.fullmatch(entry.name))
            and not (found[1] or "").endswith("conmon")
        }

    def _walk(self) -> Iterator[tuple[str, Path]]:
        """Every pod's UID and cgroup, those nearest to the root first."""
        level: list[str | Path] = [self.root]
        for _ in range(_DEEPEST):
            inner = [entry for folder in level for entry in _list_folders(folder)]
            level = []
            for entry in inner:
                if found := _POD.fullmatch(entry.name):
                    yield (found[1] or found[2]).replace("_", "-"), Path(entry)
                elif not _CONTAINER.fullmatch(entry.name):
                    level.append(entry.path)


def _list_folders(folder: str | Path) -> list[os.DirEntry[str]]:
    """The cgroups in a cgroup; none where it has just been removed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (each for each in entries if each.is_dir(follow_symlinks=False)),
                key=lambda each: each.name,
            )
    except OSError:
        return []


def read_stat(text: str) -> tuple[str, int] | None:
    """A process' own name and its start in clock ticks, from /proc/PID/stat."""
    # The name may hold spaces and parentheses: only the last one closes it.
    head, closed, tail = text.rpartition(")")
    fields = tail.split()
    if not closed or len(fields) < 20 or not fields[19].isdecimal():
        return None
    command = head.partition("(")[2]
    return "".join(each if each.isprintable() else "?" for each in command), int(fields[19])


class ProcessTable:
    """Looks processes up under /proc, reading a cgroup once for as long as its process lives."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = str(root)
        self._known: dict[int, HostProcess] = {}

    def look(self, pids: Collection[int]) -> dict[int, HostProcess]:
        """Those of the processes that run; others are dropped from the cache."""
        seen: dict[int, HostProcess] = {}
        for pid in pids:
            found = self._look_at(pid)
            if found is not None:
                seen[pid] = found
        self._known = seen
        return seen

    def _look_at(self, pid: int) -> HostProcess | None:
        stat = self._read(pid, "stat")
        told = None if stat is None else read_stat(stat)
        if told is None:
            return None
        command, started = told
        known = self._known.get(pid)
        # A process may still be on its way into its container: only arrival is remembered.
        if known is not None and known.started == started and known.refs:
            return known
        text = self._read(pid, "cgroup")
        return None if text is None else HostProcess(pid, started, command, read_cgroup_refs(text))

    def _read(self, pid: int, name: str) -> str | None:
        try:
            file = os.open(f"{self._root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(file, _MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            # The process ended between opening and reading.
            return None
        finally:
            os.close(file)
