"""Debian packages: downloaded with an apt state of their own, verified by apt, and unpacked.

The machine's own package lists stay as they are, and no step needs root.
"""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from image.recipe import PACKAGES, Architecture

# The sources of the machine, or a file of your own.
_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
_FIELDS = "${Package}\t${Version}\t${Architecture}"


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """One package that is in the image."""

    name: str
    version: str
    architecture: str
    sha256: str
    file: Path


def fetch_packages(architecture: Architecture, cache: Path) -> tuple[DebianPackage, ...]:
    """Every package of the recipe, of the newest version that the sources have."""
    folder = cache / f"debian-{architecture.name}"
    for name in ("lists/partial", "archives/partial", "debs", "empty"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    debs = folder / "debs"
    apt = ["apt-get", "--quiet=2", *_options(folder, architecture)]
    _run([*apt, "update"], debs)
    _run([*apt, "download", *(f"{name}:{architecture.name}" for name in PACKAGES)], debs)
    found: dict[str, DebianPackage] = {}
    # A cache that is used again may hold a former version as well; the newest file counts.
    for file in sorted(debs.glob("*.deb"), key=lambda each: each.stat().st_mtime):
        package = _describe(file)
        found[package.name] = package
    if missing := set(PACKAGES) - set(found):
        raise ValueError(f"apt brought no {', '.join(sorted(missing))} for {architecture.name}")
    return tuple(found[name] for name in PACKAGES)


def unpack(packages: tuple[DebianPackage, ...], root: Path) -> None:
    """The files of the packages are below the root; their scripts are not run."""
    root.mkdir(parents=True, exist_ok=True)
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package.file), str(root)], root)


def _options(folder: Path, architecture: Architecture) -> list[str]:
    named = os.environ.get("SLICEWISE_APT_SOURCES")
    sources = Path(named) if named else next(each for each in _SOURCES if each.exists())
    settings = {
        "APT::Architecture": architecture.name,
        "APT::Architectures": architecture.name,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Dir::Etc::sourcelist": str(sources),
        "Dir::Etc::sourceparts": str(folder / "empty"),
        "Dir::State": str(folder),
        "Dir::State::lists": str(folder / "lists"),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder),
        "Dir::Cache::archives": str(folder / "archives"),
    }
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def _describe(file: Path) -> DebianPackage:
    show = ["dpkg-deb", "--show", f"--showformat={_FIELDS}", str(file)]
    name, version, architecture = _run(show, file.parent).split("\t")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return DebianPackage(name, version, architecture, digest, file)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{command[0]} {command[-1]}: {done.stderr.strip()}")
    return done.stdout
