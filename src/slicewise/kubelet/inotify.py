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
_IGNORED: Final = 0x8000
_EVENT: Final = struct.Struct("iIII")
_MOST_BYTES: Final = 1 << 16


class InotifyWatch:
    """Waits for a file of this name to be made, and for anything in folders that are followed.

    Where inotify is refused, it waits only for time to pass.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._names: dict[int, bytes | None] = {}
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
            # The folder itself may have been made again, or only now.
            self._watch()
        self._arrived.clear()

    def follow(self, folder: Path) -> None:
        """Wake for whatever is made in this folder, until it is gone; any thread may call."""
        self._add(folder, None)

    def _watch(self) -> None:
        if self._path is not None:
            self._add(self._path.parent, os.fsencode(self._path.name))

    def _add(self, folder: Path, name: bytes | None) -> None:
        if self._file >= 0:
            mask = _CREATED_OR_MOVED
            watch = self._libc.inotify_add_watch(self._file, os.fsencode(folder), mask)
            if watch >= 0:
                self._names[watch] = name

    def _read(self) -> None:
        for watch, mask, name in _events(os.read(self._file, _MOST_BYTES)):
            if mask & _IGNORED:
                self._names.pop(watch, None)
            elif self._names.get(watch) in (None, name):
                self._arrived.set()


def _events(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield watch, mask, data[at : at + length].rstrip(b"\0")
        at += length
