"""Notices at once that a file appeared in a folder, through the kernel's inotify.

A kubelet that starts admits waiting pods a fraction of a second after its socket is there, and
fails for good those whose plugin it does not know by then; looking now and then is too slow.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

_CREATED_OR_MOVED: Final = 0x100 | 0x80
_EVENT: Final = struct.Struct("iIII")
_MOST_BYTES: Final = 1 << 16


class InotifyWatch:
    """Waits for a file of this name to be made; where inotify is refused, only for time to pass."""

    def __init__(self, path: Path) -> None:
        self._folder = os.fsencode(path.parent)
        self._name = os.fsencode(path.name)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._arrived = asyncio.Event()

    def __enter__(self) -> Self:
        if self._file >= 0:
            asyncio.get_running_loop().add_reader(self._file, self._read)
            self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    async def wait(self, seconds: float) -> None:
        """Return when the file was made since the last wait, and at the latest after this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            # The folder itself may have been made anew, or only now.
            self._watch()
        self._arrived.clear()

    def _watch(self) -> None:
        if self._file >= 0:
            self._libc.inotify_add_watch(self._file, self._folder, _CREATED_OR_MOVED)

    def _read(self) -> None:
        if self._name in _names(os.read(self._file, _MOST_BYTES)):
            self._arrived.set()


def _names(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        *_, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield data[at : at + length].rstrip(b"\0")
        at += length
