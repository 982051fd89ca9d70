"""Wheels: downloaded by the pins' hashes for another machine, and unpacked file by file.

pip writes notes of its own beside what it installs, which differ from run to run; unpacking here
gives the same files every time.
"""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename
from pins import PINS, Pin, find_required, read_pins

from image.recipe import PYTHON, Architecture

PRODUCT = "slicewise"
_KEPT_DATA = ("purelib", "platlib")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel that is in the image."""

    name: str
    version: str
    sha256: str
    file: Path


def find_pins() -> tuple[Pin, ...]:
    """The pins of what the product runs with."""
    pins = read_pins(PINS.read_text())
    return tuple(pins[name] for name in sorted(find_required([PRODUCT])) if name != PRODUCT)


def write_requirements(pins: tuple[Pin, ...]) -> str:
    """A requirements file that pip takes with --require-hashes."""
    return "".join(
        f"{pin.name}=={pin.version} {' '.join(f'--hash=sha256:{each}' for each in pin.hashes)}\n"
        for pin in pins
    )


def fetch_wheels(
    architecture: Architecture, cache: Path, python: tuple[int, int] = PYTHON
) -> tuple[Wheel, ...]:
    """A wheel of every pin that runs on such machines; pip compares the hashes."""
    folder = cache / f"wheels-{architecture.name}-{python[0]}.{python[1]}"
    folder.mkdir(parents=True, exist_ok=True)
    pins = find_pins()
    wanted = folder / "requirements.txt"
    wanted.write_text(write_requirements(pins))
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps",
        "--only-binary=:all:", f"--python-version={python[0]}.{python[1]}", "--implementation=cp",
        *(f"--platform={each}" for each in architecture.platforms),
        "--dest", str(folder), "--requirement", str(wanted),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"pip download for {architecture.name}: {done.stderr.strip()}")
    return _pick(folder, pins)


def build_product(source: Path, cache: Path) -> Wheel:
    """A wheel of the product itself."""
    folder = cache / "product"
    folder.mkdir(parents=True, exist_ok=True)
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(hatchling, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"hatchling: {done.stderr.strip()}")
    newest = max(folder.glob("*.whl"), key=lambda each: each.stat().st_mtime)
    return _describe(newest)


def unpack_wheel(wheel: Path, site: Path) -> None:
    """The wheel's modules and metadata are in the folder; scripts and other data are not."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = _place(member.filename)
            if name is None or member.is_dir():
                continue
            target = (site / name).resolve()
            if not target.is_relative_to(site.resolve()):
                raise ValueError(f"{wheel.name}: {member.filename} leads out of the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))


def _place(name: str) -> str | None:
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, inside = rest.partition("/")
    return inside if kind in _KEPT_DATA and inside else None


def _pick(folder: Path, pins: tuple[Pin, ...]) -> tuple[Wheel, ...]:
    wanted = {(pin.name.lower().replace("_", "-"), pin.version): pin for pin in pins}
    found = [wheel for wheel in map(_describe, sorted(folder.glob("*.whl")))
             if (wheel.name, wheel.version) in wanted]  # fmt: skip
    for wheel in found:
        if wheel.sha256 not in wanted[wheel.name, wheel.version].hashes:
            raise ValueError(f"{wheel.file.name}: its hash is not among the pins")
    if len(found) != len(pins):
        raise ValueError(f"{len(found)} wheels for {len(pins)} pins in {folder}")
    return tuple(found)


def _describe(file: Path) -> Wheel:
    name, version, _, _ = parse_wheel_filename(file.name)
    return Wheel(str(name), str(version), hashlib.sha256(file.read_bytes()).hexdigest(), file)
