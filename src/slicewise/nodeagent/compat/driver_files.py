"""The files of the NVIDIA driver on a host: libraries and tools, found without its toolkit.

A root may be the host's own, a folder in which the host's `/usr` is mounted, or the folder of a
driver that a container brought. The first root that has the driver is taken whole.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slicewise.nodeagent.compat.shared_objects import read_shared_object
from slicewise.nodeagent.compat.volume_config import INTERPOSER, VolumeParts

ROOTS: Final = (Path("/usr/local/host"), Path("/run/nvidia/driver"), Path("/"))
VERSION_FILE: Final = Path("/proc/driver/nvidia/version")
_LIBRARY_FOLDERS: Final = (
    "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib/x86_64-linux-gnu/nvidia/current",
    "lib/aarch64-linux-gnu/nvidia/current", "lib", "lib/nvidia", "local/lib64", "local/lib",
    "lib32", "lib/i386-linux-gnu", "lib/i386-linux-gnu/nvidia/current",
)  # fmt: skip
_TOOL_FOLDERS: Final = ("bin", "sbin", "local/bin", "lib/nvidia/bin")
_LIBRARY: Final = re.compile(r"(lib[A-Za-z0-9_+-]+)\.so(?:\.([0-9.]+))?")
# Versions of drivers, in distinction to those of interfaces such as 1 or 1.1.13.
_DRIVER: Final = re.compile(r"\d{3,}\.\d+(?:\.\d+)?")
_KERNEL: Final = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d{3,}\.\d+(?:\.\d+)?)")
# Libraries that other vendors have under the same names: only those of the driver's own version.
_COMMON: Final = frozenset(
    {"libGL", "libGLX", "libOpenGL", "libGLESv1_CM", "libGLESv2", "libEGL", "libGLdispatch"}
)


@dataclass(frozen=True, slots=True)
class DriverLibrary:
    """One library file: its name without `.so`, how wide it is, and what programs load it by."""

    path: Path
    stem: str
    version: str
    bits: int
    soname: str


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """What was found of one driver."""

    version: str = ""
    libraries: tuple[DriverLibrary, ...] = ()
    tools: dict[str, Path] = field(default_factory=dict)


def find_driver(
    roots: Sequence[Path], volumes: Iterable[VolumeParts], version_file: Path = VERSION_FILE
) -> DriverFiles | None:
    """The driver of the first root that has one; None where none has."""
    parts = tuple(volumes)
    stems = frozenset(stem for each in parts for stem in each.libraries)
    tools = tuple(dict.fromkeys(tool for each in parts for tool in each.tools))
    loaded = _read_loaded(version_file)
    for root in roots:
        found = tuple(_list_libraries(root, stems))
        version = _choose_version(found, loaded)
        if version is not None:
            kept = tuple(each for each in found if _belongs(each, version))
            return DriverFiles(version, kept, _find_tools(root, tools))
    return None


def _list_libraries(root: Path, stems: frozenset[str]) -> Iterator[DriverLibrary]:
    seen: set[tuple[int, str]] = set()
    for folder in _folders(root, _LIBRARY_FOLDERS):
        for path in _list_files(folder):
            match = _LIBRARY.fullmatch(path.name)
            if match is None or match[1] not in stems or path.is_symlink():
                continue
            shared = read_shared_object(path)
            if shared is not None and (shared.bits, path.name) not in seen:
                seen.add((shared.bits, path.name))
                yield DriverLibrary(path, match[1], match[2] or "", shared.bits, shared.soname)


def _choose_version(found: Sequence[DriverLibrary], loaded: str | None) -> str | None:
    """The version of the module that is loaded, or else the newest one with a library of CUDA."""
    versions = {
        each.version
        for each in found
        if each.stem in ("libcuda", "libnvidia-ml") and _DRIVER.fullmatch(each.version)
    }
    if loaded in versions:
        return loaded
    return max(versions, key=lambda text: [int(part) for part in text.split(".")], default=None)


def _belongs(library: DriverLibrary, version: str) -> bool:
    if library.stem in _COMMON or _DRIVER.fullmatch(library.version):
        return library.version == version
    return bool(library.version) or library.stem == INTERPOSER


def _find_tools(root: Path, names: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in _folders(root, _TOOL_FOLDERS):
        for name in names:
            path = folder / name
            if name not in found and path.is_file():
                found[name] = path
    return found


def _folders(root: Path, names: Sequence[str]) -> Iterator[Path]:
    # On most hosts /lib is a link to /usr/lib, and a folder is then looked at once.
    seen: set[Path] = set()
    for base in (root / "usr", root):
        for name in names:
            folder = base / name
            real = folder.resolve()
            if real not in seen and folder.is_dir():
                seen.add(real)
                yield folder


def _list_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _read_loaded(path: Path) -> str | None:
    try:
        match = _KERNEL.search(path.read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return None if match is None else match[1]
