"""Protobuf by hand: the few wire forms that the kubelet's messages use, told by dataclasses.

A message is a frozen dataclass whose fields say their number and form. Fields that are not
named are skipped, as protobuf asks; empty values are left out, as proto3 does.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from struct import Struct
from typing import Any, Final, TypeVar

from slicewise.model import SlicewiseError

M = TypeVar("M")
_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_MASK64: Final = (1 << 64) - 1
_FORM: Final = "form"
_REAL: Final = Struct("<f")


class WireError(SlicewiseError):
    """Bytes that are no message of the expected kind."""


@dataclass(frozen=True, slots=True)
class WireForm:
    number: int
    wire: int
    write: Callable[[Any], bytes | int]
    read: Callable[[Any], Any]
    many: bool = False
    pairs: bool = False


_KNOWN: dict[type[Any], tuple[tuple[str, WireForm], ...]] = {}


def text(number: int) -> Any:
    return field(default="", metadata={_FORM: _text_form(number)})


def texts(number: int) -> Any:
    return field(default=(), metadata={_FORM: _text_form(number, many=True)})


def truth(number: int) -> Any:
    return field(default=False, metadata={_FORM: WireForm(number, _VARINT, int, bool)})


def number(at: int) -> Any:
    """A whole number of up to 64 bits, negative ones included."""
    return field(default=0, metadata={_FORM: _number_form(at)})


def numbers(at: int) -> Any:
    """Whole numbers in their order, packed or not."""
    return field(default=(), metadata={_FORM: _number_form(at, many=True)})


def real(at: int) -> Any:
    """A number of single precision."""
    form = WireForm(at, _FIXED32, _write_real, lambda data: _REAL.unpack(data)[0])
    return field(default=0.0, metadata={_FORM: form})


def one(at: int, kind: type[Any]) -> Any:
    """A message inside; None when it is absent."""
    return field(default=None, metadata={_FORM: _message_form(at, kind)})


def many(at: int, kind: type[Any]) -> Any:
    return field(default=(), metadata={_FORM: _message_form(at, kind, many=True)})


def pairs(at: int) -> Any:
    form = WireForm(at, _BYTES, _write_pair, _read_pair, many=True, pairs=True)
    return field(default_factory=dict, metadata={_FORM: form})


def messages(at: int, kind: type[Any]) -> Any:
    """Messages of one kind by their names."""
    form = WireForm(
        at, _BYTES, _write_entry, lambda data: _read_entry(kind, data), many=True, pairs=True
    )
    return field(default_factory=dict, metadata={_FORM: form})


def encode(message: Any) -> bytes:
    parts: list[bytes] = []
    for name, form in _forms(type(message)):
        value = getattr(message, name)
        if not value and value is not None and not form.many and form.wire != _BYTES:
            continue
        for each in _each(value, form):
            written = form.write(each)
            if isinstance(written, int):
                parts.append(varint(form.number << 3 | _VARINT) + varint(written & _MASK64))
            elif form.wire == _FIXED32:
                parts.append(varint(form.number << 3 | _FIXED32) + written)
            else:
                parts.append(delimited(form.number, written))
    return b"".join(parts)


def decode(kind: type[M], data: bytes) -> M:
    """The message of this kind that the bytes hold."""
    forms = {form.number: (name, form) for name, form in _forms(kind)}
    found: dict[str, Any] = {}
    try:
        for at, wire, value in split(data):
            if at not in forms:
                continue
            name, form = forms[at]
            if form.many and wire == _BYTES and form.wire == _VARINT:
                found.setdefault(name, []).extend(map(form.read, _unpack(value)))
                continue
            if wire != form.wire:
                raise WireError(f"{kind.__name__}.{name}: wire form {wire}, expected {form.wire}")
            read = form.read(value)
            if form.many:
                found.setdefault(name, []).append(read)
            else:
                found[name] = read
    except (IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{kind.__name__}: {len(data)} bytes end in the middle") from error
    for name, form in forms.values():
        if name in found and form.many:
            found[name] = dict(found[name]) if form.pairs else tuple(found[name])
    return kind(**found)


def varint(value: int) -> bytes:
    """A number from 0 up in protobuf's seven-bit groups."""
    if value < 0x80:
        return bytes((value,))
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def delimited(at: int, content: bytes) -> bytes:
    """A field whose content follows its length."""
    return varint(at << 3 | _BYTES) + varint(len(content)) + content


def split(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, wire form, and a number or bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, wire, value
            continue
        size = _WIDTHS.get(wire, 0)
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        elif not size:
            raise WireError(f"wire form {wire}: expected 0, 1, 2 or 5")
        if at + size > end:
            raise IndexError(at + size)
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")


def _unpack(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _text_form(number: int, *, many: bool = False) -> WireForm:
    return WireForm(number, _BYTES, str.encode, bytes.decode, many)


def _number_form(number: int, *, many: bool = False) -> WireForm:
    return WireForm(number, _VARINT, int, _signed, many)


def _message_form(number: int, kind: type[Any], *, many: bool = False) -> WireForm:
    return WireForm(number, _BYTES, encode, lambda data: decode(kind, data), many)


def _write_real(value: float) -> bytes:
    return _REAL.pack(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _write_pair(pair: tuple[str, str]) -> bytes:
    return delimited(1, pair[0].encode()) + delimited(2, pair[1].encode())


def _read_pair(data: bytes) -> tuple[str, str]:
    found = {at: value.decode() for at, wire, value in split(data) if wire == _BYTES}
    return found.get(1, ""), found.get(2, "")


def _write_entry(entry: tuple[str, Any]) -> bytes:
    return delimited(1, entry[0].encode()) + delimited(2, encode(entry[1]))


def _read_entry(kind: type[M], data: bytes) -> tuple[str, M]:
    found = {at: value for at, wire, value in split(data) if wire == _BYTES}
    return found.get(1, b"").decode(), decode(kind, found.get(2, b""))


def _each(value: Any, form: WireForm) -> Any:
    if form.pairs:
        given: Mapping[str, Any] = value
        return given.items()
    if form.many:
        return value
    return () if value is None or value == "" else (value,)


def _forms(kind: type[Any]) -> tuple[tuple[str, WireForm], ...]:
    known = _KNOWN.get(kind)
    if known is not None:
        return known
    found = [(each.name, each.metadata[_FORM]) for each in fields(kind) if each.metadata]
    if any(each.default is MISSING and each.default_factory is MISSING for each in fields(kind)):
        raise TypeError(f"{kind.__name__}: expected a default for every field")
    known = _KNOWN[kind] = tuple(sorted(found, key=lambda pair: pair[1].number))
    return known
