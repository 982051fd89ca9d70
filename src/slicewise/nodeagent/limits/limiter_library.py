"""The limiter library on the host: immutable versions, and the file that preloads it.

A file that containers have mapped is never written again; a new version is a new file.
"""

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from slicewise import __version__
from slicewise.model import SlicewiseError
from slicewise.nodeagent.files import make_folder, remove, write_whole

_log = structlog.get_logger(__name__)
NAME: Final = "libslicewise-limit.so"
PRELOAD: Final = "ld.so.preload"
INSIDE: Final = f"/usr/local/slicewise/lib/{NAME}"
"""Where containers have it."""
_MACHINES: Final = ("x86_64", "aarch64")
_DIGITS: Final = 12
_ELF: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class InstalledLibrary:
    """One version on the host, and the preload file that names it."""

    version: str
    path: Path
    preload: Path


class LimiterLibrary:
    """The versions in one folder of the host, of which `source` becomes the newest."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._installed: InstalledLibrary | None = None
        self.problem = "the limiter library has not been looked for yet"
        """Why there is none; empty when it is installed."""

    @property
    def installed(self) -> InstalledLibrary | None:
        return self._installed

    def install(self, machine: str | None = None) -> InstalledLibrary | None:
        """Have this agent's version on the host, whole; None, and the problem, if it cannot be."""
        self._installed, self.problem = None, ""
        machine = platform.machine() if machine is None else machine
        try:
            content = self._source.read_bytes()
        except OSError as error:
            self.problem = f"no limiter library at {self._source}: {error.strerror}"
        else:
            if not content.startswith(_ELF):
                self.problem = f"{self._source} is no library"
        if machine not in _MACHINES:
            self.problem = f"no limiter library for {machine}"
        if self.problem:
            _log.warning("containers are not limited", reason=self.problem)
            return None
        try:
            self._installed = self._write(content)
        except SlicewiseError as error:
            self.problem = str(error)
            _log.warning("containers are not limited", reason=self.problem)
        return self._installed

    def _write(self, content: bytes) -> InstalledLibrary:
        version = f"{__version__}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}"
        path, preload = self._folder / version / NAME, self._folder / PRELOAD
        make_folder(path.parent)
        if not path.is_file() or path.read_bytes() != content:
            # Only what an interrupted write or a bad disk has left is replaced.
            write_whole(path, content, 0o755)
        line = f"{INSIDE}\n".encode()
        if not preload.is_file() or preload.read_bytes() != line:
            write_whole(preload, line)
        return InstalledLibrary(version, path, preload)

    def sweep(self, used: frozenset[str]) -> None:
        """Remove versions that no container was given and that is not the newest."""
        if self._installed is None or not self._folder.is_dir():
            return
        for each in self._folder.iterdir():
            if each.is_dir() and each.name not in used and each.name != self._installed.version:
                remove(each)
                _log.info("limiter library removed", version=each.name)
