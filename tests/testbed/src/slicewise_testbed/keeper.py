"""The process that outlives a killed test run and leaves nothing of its testbed behind.

It holds one end of a pipe whose other end only the test run holds. When that end closes, for
whatever reason, the first process of the testbed's PID namespace is killed; the kernel then kills
every process in there, and mounts, links and network namespaces go with the last of them.
The keeper itself stays outside, and removes the control groups and the folder.
If the keeper is killed too, the kernel kills the rest, and the next testbed sweeps the folder.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from slicewise_testbed import kernel
from slicewise_testbed.reaper import serve

_CGROUPS = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS = 5.0
# The word that asks for a network namespace.
OWN_NETWORK = "network"


def main() -> None:
    """Serve the testbed of a folder, hold its lock, and end when the lifeline closes."""
    folder, lock = Path(sys.argv[1]), int(sys.argv[2])
    words = sys.argv[3:]
    apart = OWN_NETWORK in words
    lifeline = next((int(word) for word in words if word != OWN_NETWORK), None)
    # A program that inherited the lock would make a dead testbed look alive.
    os.set_inheritable(lock, False)
    alone = os.geteuid() == 0
    if alone:
        kernel.unshare(kernel.CLONE_NEWPID)
    kernel.adopt_orphans()
    leash, tug = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tug)
        if lifeline is not None:
            os.close(lifeline)
        kernel.die_with_parent()
        serve(folder, leash, alone, apart)
        os._exit(0)
    os.close(leash)
    _wait_for_end(child, lifeline)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _end_children()
    remove_traces(folder)


def _wait_for_end(child: int, lifeline: int | None) -> None:
    ended, tell = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(tell, b"."))
    events = select.poll()
    events.register(os.pidfd_open(child), select.POLLIN)
    events.register(ended, select.POLLIN)
    if lifeline is not None:
        events.register(lifeline, select.POLLIN | select.POLLHUP)
    events.poll()


def _end_children() -> None:
    # In a PID namespace the kernel has killed them all. Without one the orphans come to this
    # process, and the children of each of them only after its own end.
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.wait()


def remove_traces(folder: Path) -> None:
    """What the kernel does not remove by itself is gone: the control groups and the folder."""
    for hierarchy in (_CGROUPS, *_CGROUPS.glob("*/")):
        _remove_cgroup(hierarchy / folder.name)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_cgroup(group: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while group.is_dir() and time.monotonic() < deadline:
        for path, _, _ in os.walk(group, topdown=False):
            # A group is busy for a moment after its last process died.
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if group.is_dir():
            time.sleep(0.05)


if __name__ == "__main__":
    main()
