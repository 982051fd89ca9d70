"""The system calls Python 3.11 does not offer: namespaces, mounts and the parent-death signal."""

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
MS_REC = 0x4000
MS_PRIVATE = 0x40000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """This process, or its next child for a PID namespace, is in new namespaces."""
    _check(_libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """A file system is mounted, or the propagation of a mount is changed."""
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None))


def die_with_parent() -> None:
    """The kernel kills this process as soon as its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
