"""Unix sockets by path: their addresses, and how a new one is distinguished from an old one."""

import os
from pathlib import Path
from typing import Final

# gRPC waits longer and longer, up to two minutes, which is meant for servers far away.
RECONNECT: Final = tuple(
    (f"grpc.{which}_reconnect_backoff_ms", milliseconds)
    for which, milliseconds in (("initial", 50), ("min", 50), ("max", 500))
)
# The kernel takes 107 bytes; a longer path is reached through its folder's descriptor.
_LONGEST: Final = 100


def socket_address(path: Path) -> str:
    """The gRPC address of a socket, however long its path is."""
    if len(os.fsencode(path)) <= _LONGEST:
        return f"unix:{path}"
    return f"unix:/proc/self/fd/{_hold_folder(path.parent)}/{path.name}"


def socket_stamp(path: Path) -> tuple[int, int, int] | None:
    """Which socket is at this path; None when there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    # A file system may give a new file the number of the one just removed.
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns


def release_folder(folder: Path) -> None:
    """Let go of a folder whose sockets are used no more."""
    held = _held.pop(folder, None)
    if held is not None:
        os.close(held)


_held: dict[Path, int] = {}


def _hold_folder(folder: Path) -> int:
    # The address is used again whenever gRPC connects again, so the descriptor stays open.
    held = _held.get(folder)
    if held is not None and os.path.samestat(os.fstat(held), folder.stat()):
        return held
    release_folder(folder)
    _held[folder] = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return _held[folder]
