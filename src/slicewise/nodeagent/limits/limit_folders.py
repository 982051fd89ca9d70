"""The agent's folder of grants and usages: one pair of files for each limited container.

They lie on a small tmpfs of the agent's own, so that a tenant who makes its usage file grow fills
nothing else. Files are made whole before the container starts and then only written in place:
a container has their inodes mounted.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from slicewise.nodeagent.files import SCRATCH, check_name, make_folder, make_link, remove
from slicewise.nodeagent.limits import grant_file, usage_file
from slicewise.nodeagent.limits.grant_file import (
    FedDevice,
    LimitFileError,
    LimitGrant,
    read_grant,
    write_grant,
)

_log = structlog.get_logger(__name__)
GRANT: Final = "grant"
USAGE: Final = "usage"
LIBRARY: Final = "library"
"""Names the version of the library that the container was given; for the agent alone."""
BY_UNITS: Final = "by-units"
_MOUNT_OPTIONS: Final = b"size=64m,nr_inodes=8192,mode=0755"
_MOST_BYTES: Final = 64 << 20
# A tenant takes longer to fill the tmpfs again than a container's files take to be made.
_TRIES: Final = 20
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8


class LimitFiles:
    """The open files of one container; closing them changes nothing on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._grant = _open(folder / GRANT, os.O_RDWR)
        try:
            self._usage = _open(folder / USAGE, os.O_RDONLY)
        except LimitFileError:
            os.close(self._grant)
            raise
        try:
            self._map = mmap.mmap(self._grant, grant_file.SIZE)
            self.grant = read_grant(bytes(self._map))[0]
        except (LimitFileError, ValueError, OSError) as error:
            self.close()
            raise LimitFileError(f"{folder / GRANT}: {error}") from error

    def feed(self, devices: list[FedDevice], written_ns: int) -> None:
        """Renew what the library may use now."""
        grant_file.feed_grant(self._map, devices, written_ns)

    def read_meters(self) -> tuple[usage_file.DeviceMeters, ...]:
        """What the container's processes count together on each GPU."""
        content = os.pread(self._usage, usage_file.METERS, 0)
        return usage_file.read_meters(content, len(self.grant.devices))

    def read_slots(self) -> tuple[usage_file.UsageSlot, ...]:
        """The processes that have registered; dead ones may be among them."""
        content = os.pread(self._usage, usage_file.SIZE, 0)
        return usage_file.read_slots(content, [each.gpu_bytes for each in self.grant.devices])

    def find_holder(self, slot: int) -> int | None:
        """The host's PID of whoever holds the slot; None when its process has ended."""
        return usage_file.find_holder(self._usage, slot)

    def restore_size(self) -> bool:
        """Cut a usage file back that its tenant has resized; whether it had been."""
        if os.fstat(self._usage).st_size == usage_file.SIZE:
            return False
        os.truncate(self.folder / USAGE, usage_file.SIZE)
        return True

    def close(self) -> None:
        for name in ("_map", "_grant", "_usage"):
            held = self.__dict__.pop(name, None)
            if isinstance(held, int):
                os.close(held)
            elif held is not None:
                held.close()


class LimitFolders:
    """All of them, by pod and container."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mount(self) -> None:
        """Have a tmpfs of our own there; without the right to mount, a plain folder serves."""
        make_folder(self.root)
        # What is mounted into the agent's own container is not ours to cover.
        failure = 0 if os.path.ismount(self.root) else _mount_tmpfs(self.root)
        status = os.statvfs(self.root)
        if failure or status.f_blocks * status.f_frsize > _MOST_BYTES:
            _log.warning(
                "limits are not on a tmpfs of their own: a tenant can fill the file system there",
                path=str(self.root),
                error=os.strerror(failure) if failure else "it is a part of a larger one",
            )

    def folder(self, uid: str, container: str) -> Path:
        return self.root / check_name("pod UID", uid) / check_name("container", container)

    def write(self, grant: LimitGrant, library: str) -> None:
        """Make the container's files, or bring those up to date in place that it already has."""
        folder = self.folder(grant.uid, grant.container)
        if folder.is_dir():
            self._renew(folder, grant, library)
            return
        for left in reversed(range(_TRIES)):
            try:
                self._make(folder, grant, library)
            except OSError as error:
                # A tenant may have made its file as large as the tmpfs, and do so again.
                if left and error.errno == errno.ENOSPC and self._restore_sizes():
                    continue
                raise LimitFileError(
                    f"cannot make {folder}: {error.strerror}; the tmpfs of limits may be full"
                ) from error
            return

    def _make(self, folder: Path, grant: LimitGrant, library: str) -> None:
        """Make the container's files whole, or none of them."""
        scratch = folder.with_name(f"{SCRATCH}{secrets.token_hex(4)}")
        try:
            make_folder(scratch)
            now = time.monotonic_ns()
            _create(scratch / GRANT, write_grant(grant, written_ns=now), 0o444)
            _create(scratch / USAGE, usage_file.write_usage(now), 0o666)
            _create(scratch / LIBRARY, library.encode(), 0o444)
            os.rename(scratch, folder)
        except OSError:
            with contextlib.suppress(Exception):
                remove(scratch)
            raise

    def _restore_sizes(self) -> bool:
        """Cut every usage file back that its tenant has made larger; whether there was one."""
        found = False
        for uid, container in self.containers():
            path = self.root / uid / container / USAGE
            with contextlib.suppress(OSError):
                if path.stat().st_size > usage_file.SIZE:
                    os.truncate(path, usage_file.SIZE)
                    found = True
        return found

    def _renew(self, folder: Path, grant: LimitGrant, library: str) -> None:
        """Keep what is right; what is not is written in place, for inodes are mounted."""
        try:
            with contextlib.closing(LimitFiles(folder)) as files:
                files.restore_size()
                kept = _fixed(files.grant) == _fixed(grant)
        except LimitFileError:
            kept = False
        if not kept:
            now = time.monotonic_ns()
            _overwrite(folder / GRANT, write_grant(grant, written_ns=now), 0o444)
        try:
            usage_file.check_header((folder / USAGE).read_bytes()[:64])
        except (LimitFileError, OSError):
            _overwrite(folder / USAGE, usage_file.write_usage(time.monotonic_ns()), 0o666)
        _overwrite(folder / LIBRARY, library.encode(), 0o444)

    def containers(self) -> Iterator[tuple[str, str]]:
        """UID and container of all that have files."""
        for uid in self.pods():
            try:
                folders = sorted((self.root / uid).iterdir())
            except OSError:
                # It was removed just now, by another thread.
                continue
            yield from ((uid, each.name) for each in folders if not each.name.startswith(SCRATCH))

    def libraries(self) -> frozenset[str]:
        """The versions of the library that containers were given."""
        found = set()
        for uid, container in self.containers():
            with contextlib.suppress(OSError):
                found.add((self.root / uid / container / LIBRARY).read_text())
        return frozenset(found)

    def pods(self) -> tuple[str, ...]:
        if not self.root.is_dir():
            return ()
        return tuple(sorted({each.name for each in self.root.iterdir()} - {BY_UNITS}))

    def remove(self, uid: str) -> None:
        remove(self.root / check_name("pod UID", uid))

    def alias(self, name: str, uid: str, container: str) -> None:
        """Link the container's folder by its units, which are known before the container is."""
        make_folder(self.root / BY_UNITS)
        target = self.folder(uid, container).relative_to(self.root)
        make_link(self.root / BY_UNITS / check_name("alias", name), f"../{target}")

    def aliases(self) -> tuple[str, ...]:
        folder = self.root / BY_UNITS
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()

    def remove_alias(self, name: str) -> None:
        remove(self.root / BY_UNITS / check_name("alias", name))


def _fixed(grant: LimitGrant) -> tuple[object, ...]:
    """What a grant says for the container's life, without what the agent's loop changes."""
    devices = tuple(
        (each.uuid, each.memory_bytes, each.cores, each.limit, each.gpu_bytes, each.priority)
        for each in grant.devices
    )
    return grant.flags, devices


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise LimitFileError(f"{path}: {error.strerror}") from error


def _create(path: Path, content: bytes, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Allocated in full, so that a tmpfs which fills up later harms nobody who runs.
        os.posix_fallocate(file, 0, len(content))
        _write(file, content, mode)
    finally:
        os.close(file)


def _overwrite(path: Path, content: bytes, mode: int) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(file, len(content))
            _write(file, content, mode)
        finally:
            os.close(file)
    except OSError as error:
        raise LimitFileError(f"cannot write {path}: {error.strerror}") from error


def _write(file: int, content: bytes, mode: int) -> None:
    if os.pwrite(file, content, 0) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fchmod(file, mode)


def _mount_tmpfs(path: Path) -> int:
    """Mount a small tmpfs at the path; the error's number, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NOSUID | _NODEV | _NOEXEC
    target = os.fsencode(path)
    if libc.mount(b"slicewise-limits", target, b"tmpfs", flags, _MOUNT_OPTIONS) == 0:
        return 0
    return ctypes.get_errno()
