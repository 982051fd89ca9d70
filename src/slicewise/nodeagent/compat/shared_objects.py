"""What a shared library says of itself: how wide it is, and the name that programs load it by."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_MAGIC: Final = b"\x7fELF"
_DYNAMIC: Final = 2
_LOAD: Final = 1
_STRINGS: Final = 5
_SONAME: Final = 14
# A table of dynamic entries is never larger.
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SharedObject:
    """One library; the soname is empty where it has none."""

    bits: int
    soname: str = ""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a class of ELF files keeps what is read."""

    bits: int
    header: str
    segment: str
    entry: str


_LAYOUTS: Final = {
    1: _Layout(32, "HHIIIIIHHH", "IIIIIIII", "iI"),
    2: _Layout(64, "HHIQQQIHHH", "IIQQQQQQ", "qQ"),
}


def read_shared_object(path: Path) -> SharedObject | None:
    """The library at this path; None where the file is none."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except (OSError, struct.error, ValueError, UnicodeDecodeError):
        return None


def _read(file: BinaryIO) -> SharedObject | None:
    identity = file.read(16)
    layout = _LAYOUTS.get(identity[4]) if identity[:4] == _MAGIC else None
    if layout is None:
        return None
    order = "<" if identity[5] == 1 else ">"
    header = _unpack(file, order + layout.header)
    offset, size, count = header[4], header[8], header[9]
    segments = []
    for at in range(count):
        file.seek(offset + at * size)
        segments.append(_read_segment(layout, _unpack(file, order + layout.segment)))
    loads = [(start, where, length) for kind, start, where, length in segments if kind == _LOAD]
    dynamic = next(
        ((start, length) for kind, start, _, length in segments if kind == _DYNAMIC), None
    )
    if dynamic is None:
        return SharedObject(layout.bits)
    return SharedObject(layout.bits, _read_soname(file, order + layout.entry, dynamic, loads))


def _read_segment(layout: _Layout, fields: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Kind, place in the file, address and length."""
    if layout.bits == 64:
        return fields[0], fields[2], fields[3], fields[5]
    return fields[0], fields[1], fields[2], fields[4]


def _read_soname(
    file: BinaryIO, entry: str, dynamic: tuple[int, int], loads: list[tuple[int, int, int]]
) -> str:
    start, length = dynamic
    file.seek(start)
    table = file.read(min(length, _MOST))
    width = struct.calcsize(entry)
    found = dict(struct.iter_unpack(entry, table[: len(table) // width * width]))
    if _SONAME not in found or _STRINGS not in found:
        return ""
    # The table holds addresses in memory; segments say where these are in the file.
    address = found[_STRINGS]
    place = next((at + address - base for at, base, size in loads if base <= address < base + size),
                 address)  # fmt: skip
    file.seek(place + found[_SONAME])
    return file.read(256).split(b"\0", 1)[0].decode("ascii")


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))
