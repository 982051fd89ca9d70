"""gpu-manager's driver volumes: a copy of the driver for containers, on plain runc.

Each volume has `bin`, `lib64` and `lib` below it. Files are hard links of the host's, or copies
where that cannot be; names by which programs load libraries are symbolic links beside them. A
volume is changed in place, file by file, so that containers that have it mounted see the new
driver, and every name leads to a whole file at every moment.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from slicewise.nodeagent.compat.driver_files import (
    ROOTS,
    VERSION_FILE,
    DriverFiles,
    DriverLibrary,
    find_driver,
)
from slicewise.nodeagent.compat.volume_config import (
    CLIENT,
    DEFAULT_VOLUMES,
    INTERPOSER,
    SHARED,
    VolumeParts,
)
from slicewise.nodeagent.files import SCRATCH, FileError, make_folder, make_link, remove

_log = structlog.get_logger(__name__)
_FOLDERS: Final = ("bin", "lib64", "lib")
_WIDTHS: Final = {64: "lib64", 32: "lib"}
_INTERPOSED: Final = ("libcuda", "libnvidia-ml")
# Where the two are on different file systems, or the host forbids links to files of others.
_UNLINKABLE: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES)
Wanted = Mapping[str, Path | str]
"""What a volume holds, by path below it: the file to copy, or the text of a symbolic link."""


class DriverVolumes:
    """Keeps the volumes of one node as its driver is."""

    def __init__(
        self,
        base: Path,
        volumes: Sequence[VolumeParts] = DEFAULT_VOLUMES,
        *,
        roots: Sequence[Path] = ROOTS,
        version_file: Path = VERSION_FILE,
    ) -> None:
        self._base = base
        self._volumes = tuple(volumes)
        self._roots = tuple(roots)
        self._version_file = version_file
        self._said = ""

    def refresh(self) -> int:
        """Bring every volume up to date; how many files and links were changed."""
        driver = find_driver(self._roots, self._volumes, self._version_file)
        if driver is None:
            self._say("driver files not found", roots=[str(root) for root in self._roots])
            return 0
        changed = 0
        for parts in self._volumes:
            folder = self._base / parts.name
            count = sync_folder(folder, plan_volume(parts, driver, folder))
            changed += count
            if count:
                _log.info(
                    "driver volume built", folder=str(folder), driver=driver.version, changed=count
                )
        self._said = ""
        return changed

    async def run(
        self, seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Look again whether the driver has changed, every so many seconds."""
        while True:
            await sleep(seconds)
            await self.try_refresh()

    async def try_refresh(self) -> None:
        """Bring the volumes up to date, or log why that cannot be."""
        try:
            await asyncio.to_thread(self.refresh)
        except (FileError, OSError) as error:
            self._say("driver volume not built", error=str(error))

    def _say(self, phrase: str, **fields: object) -> None:
        """Log a state once, not each time it is seen."""
        text = f"{phrase} {fields}"
        if text != self._said:
            self._said = text
            _log.warning(phrase, **fields)


def plan_volume(parts: VolumeParts, driver: DriverFiles, folder: Path) -> Wanted:
    """What the volume is to hold of this driver."""
    wanted: dict[str, Path | str] = {}
    for name in parts.tools:
        # What an earlier gpu-manager brought from its own image is nowhere else on the host.
        kept = folder / "bin" / name
        path = driver.tools.get(name) or (kept if name == CLIENT and kept.is_file() else None)
        if path is not None:
            wanted[f"bin/{name}"] = path
    for library in driver.libraries:
        if library.stem in parts.libraries:
            wanted |= dict(_plan_library(library))
    if parts.name == SHARED and INTERPOSER in parts.libraries:
        wanted |= _plan_interposer(driver, folder)
    return wanted


def _plan_library(library: DriverLibrary) -> Iterator[tuple[str, Path | str]]:
    folder, name = _WIDTHS.get(library.bits, "lib"), library.path.name
    yield f"{folder}/{name}", library.path
    if library.soname and library.soname != name:
        yield f"{folder}/{library.soname}", name
    plain = f"{library.stem}.so"
    if plain not in (name, library.soname):
        yield f"{folder}/{plain}", library.soname or name


def _plan_interposer(driver: DriverFiles, folder: Path) -> dict[str, Path | str]:
    """The library that answers for CUDA and NVML, where the host or the volume has one."""
    name = f"{INTERPOSER}.so"
    kept = folder / "lib64" / name
    found = (each.path for each in driver.libraries if each.stem == INTERPOSER)
    path = next(found, kept if kept.is_file() else None)
    if path is None:
        return {}
    names = (f"lib64/{stem}.so{tail}" for stem in _INTERPOSED for tail in (".1", ""))
    return {f"lib64/{name}": path, **dict.fromkeys(names, name)}


def sync_folder(folder: Path, wanted: Wanted) -> int:
    """Make the folder hold this and nothing else; how many files and links were changed."""
    for name in _FOLDERS:
        make_folder(folder / name)
    changed = 0
    # Files come first, so that no link ever leads nowhere.
    for path, source in wanted.items():
        if isinstance(source, Path):
            changed += _put_file(folder / path, source)
    for path, source in wanted.items():
        if isinstance(source, str) and not _leads_to(folder / path, source):
            make_link(folder / path, source)
            changed += 1
    for name in _FOLDERS:
        for each in (folder / name).iterdir():
            if f"{name}/{each.name}" not in wanted:
                changed += remove(each)
    return changed


def _leads_to(path: Path, target: str) -> bool:
    return path.is_symlink() and os.readlink(path) == target


def _put_file(path: Path, source: Path) -> bool:
    """Link or copy the file, unless the same is there; whether it was put there now."""
    try:
        there = path.lstat()
        facts = source.stat()
        if os.path.samestat(there, facts):
            return False
        if not path.is_symlink() and (there.st_size, there.st_mtime_ns) == (
            facts.st_size,
            facts.st_mtime_ns,
        ):
            return False
    except FileNotFoundError:
        pass
    scratch = path.with_name(f"{SCRATCH}{path.name}-{secrets.token_hex(4)}")
    try:
        _link_or_copy(source, scratch)
        os.replace(scratch, path)
    except OSError as error:
        raise FileError(f"cannot put {source} to {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno not in _UNLINKABLE:
            raise
        shutil.copy2(source, target)
