"""Reading the protobuf bodies that Go clients send; answers are always JSON.

`kubectl create namespace` and similar commands write protobuf whatever the server offers. The
reader knows the messages in `protobuf_fields.py` and refuses any field outside them, so that
nothing is lost unseen.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from slicewise.model import SlicewiseError
from slicewise_playground.api.protobuf_fields import KINDS, MESSAGES, ProtobufField
from slicewise_playground.objects.errors import ApiError
from slicewise_playground.objects.resources import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"


class ProtobufError(SlicewiseError):
    """The bytes do not follow the wire format, or hold a field that is not known."""


def read_protobuf(body: bytes) -> Object:
    """The object in a protobuf body, as JSON would spell it."""
    try:
        return _read_envelope(body)
    except ProtobufError as error:
        message = f"the protobuf body cannot be read: {error}; send application/json instead"
        raise ApiError(415, "UnsupportedMediaType", message) from error


def _read_envelope(body: bytes) -> Object:
    """The object inside the envelope that names its kind."""
    if not body.startswith(MAGIC):
        raise ProtobufError("it does not begin with the Kubernetes magic number")
    parts = dict(_fields(body[len(MAGIC) :]))
    names = dict(_fields(_bytes(parts.get(1, b""))))
    version = _bytes(names.get(1, b"")).decode()
    kind = _bytes(names.get(2, b"")).decode()
    message = KINDS.get((version, kind)) or KINDS.get(("", kind))
    if message is None:
        raise ProtobufError(f"kind {kind} of {version} is not known")
    return {"apiVersion": version, "kind": kind, **_read(message, _bytes(parts.get(2, b"")))}


def _read(message: str, data: bytes) -> Object:
    """One message by its table."""
    table = MESSAGES[message]
    found: Object = {}
    for number, raw in _fields(data):
        field = table.get(number)
        if field is None:
            raise ProtobufError(f"field {number} of {message} is not known")
        if field.type == "-":
            continue
        value = _value(field, raw)
        if field.repeated:
            found.setdefault(field.name, []).append(value)
        elif field.type in _MAPS:
            found.setdefault(field.name, {}).update(value)
        elif field.name == "":
            # A message that only groups members, which JSON spells beside each other.
            found.update(value)
        elif field.keeps_empty or value not in ("", 0, False, {}, None):
            found[field.name] = value
    return found


def _value(field: ProtobufField, raw: int | bytes) -> Any:
    """One value as JSON spells it."""
    if field.type in MESSAGES:
        return _read(field.type, _bytes(raw))
    return _TYPES[field.type](raw)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbered fields of a message."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield number, value
        elif kind == 2:
            size, place = _varint(data, place)
            if place + size > len(data):
                raise ProtobufError("it ends in the middle of a field")
            yield number, data[place : place + size]
            place += size
        else:
            raise ProtobufError(f"wire type {kind} is not used by Kubernetes")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number and the place after it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ProtobufError("it ends in the middle of a number")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _bytes(raw: int | bytes) -> bytes:
    """A value that must be bytes."""
    if isinstance(raw, int):
        raise ProtobufError("a number stands where bytes are expected")
    return raw


def _number(raw: int | bytes) -> int:
    """A value that must be a number, negative in two's complement."""
    if isinstance(raw, bytes):
        raise ProtobufError("bytes stand where a number is expected")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _text(raw: int | bytes) -> str:
    """A text."""
    return _bytes(raw).decode()


def _base64(raw: int | bytes) -> str:
    """Bytes as JSON carries them."""
    return base64.b64encode(_bytes(raw)).decode()


def _quantity(raw: int | bytes) -> str:
    """An amount."""
    return _text(dict(_fields(_bytes(raw))).get(1, b""))


def _pair(read: Callable[[int | bytes], str]) -> Callable[[int | bytes], Mapping[str, str]]:
    """A reader of one entry of a map."""

    def entry(raw: int | bytes) -> Mapping[str, str]:
        parts = dict(_fields(_bytes(raw)))
        return {_text(parts.get(1, b"")): read(parts.get(2, b""))}

    return entry


def _time(pattern: str) -> Callable[[int | bytes], str | None]:
    """A reader of moments; the zero moment is none."""

    def moment(raw: int | bytes) -> str | None:
        parts = dict(_fields(_bytes(raw)))
        seconds = _number(parts.get(1, 0))
        if not parts or seconds <= 0:
            return None
        stamp = datetime.fromtimestamp(seconds, UTC)
        return stamp.replace(microsecond=_number(parts.get(2, 0)) // 1000).strftime(pattern)

    return moment


def _int_or_text(raw: int | bytes) -> int | str:
    """A number or a text such as 25%."""
    parts = dict(_fields(_bytes(raw)))
    return _text(parts.get(3, b"")) if parts.get(1) else _number(parts.get(2, 0))


_MAPS = frozenset({"texts", "amounts", "blobs"})
_TYPES: Mapping[str, Callable[[int | bytes], Any]] = {
    "text": _text,
    "number": _number,
    "flag": lambda raw: bool(_number(raw)),
    "time": _time("%Y-%m-%dT%H:%M:%SZ"),
    "microtime": _time("%Y-%m-%dT%H:%M:%S.%fZ"),
    "mixed": _int_or_text,
    "texts": _pair(_text),
    "amounts": _pair(_quantity),
    "blobs": _pair(_base64),
}
