"""The `grant` file: what a container may use, as bytes that the limiter library maps read-only.

4096 bytes, little-endian, at fixed offsets; `native/limiter` has the same numbers. The sequence is
odd while the agent writes, and a CRC covers everything behind the header, so a reader never takes
a half-written grant for a whole one.
"""

import struct
import uuid as uuids
import zlib
from dataclasses import dataclass
from enum import IntFlag
from mmap import mmap
from typing import Final

from slicewise.model import SlicewiseError

MAGIC: Final = b"SWGRANT1"
VERSION: Final = 1
SIZE: Final = 4096
MOST_DEVICES: Final = 16
ONE: Final = 1 << 16
"""The scale 1.0."""
BURST_NS: Final = 20_000_000

_HEADER: Final = struct.Struct("<8sIIQQIII20x")
_DEVICE: Final = struct.Struct("<48s16sQIIIIQQQQiII108x")
_NAMES: Final = struct.Struct("<48s64s80x")
_BODY: Final = _HEADER.size
_SEQUENCE: Final = struct.Struct("<Q")
_STAMP: Final = struct.Struct("<QI")
_AT_SEQUENCE: Final = 16
_AT_WRITTEN: Final = 24
_AT_NAMES: Final = _BODY + MOST_DEVICES * _DEVICE.size
# Ceiling, limit and scale stand beside each other; so do overhead and context.
_PACE: Final = struct.Struct("<III")
_AT_CEILING: Final = 76
_EXTRA: Final = struct.Struct("<QQ")
_AT_OVERHEAD: Final = 88
_USE: Final = struct.Struct("<I")
_AT_MEASURED: Final = 128
_GPU: Final = "GPU-"


class GrantFlags(IntFlag):
    """What the library does with the grant."""

    GATE_MEMORY = 1
    GATE_COMPUTE = 2
    FAIL_CLOSED = 4
    SHOW_LIMITS = 8
    COUNT_MANAGED = 16
    VERBOSE = 32
    NO_TIMING = 64


class LimitFileError(SlicewiseError):
    """A grant or usage file that is not what its layout says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """What is granted of one GPU; compute in hundredths of a percent."""

    uuid: str
    memory_bytes: int = 0
    """0 is no limit."""
    cores: int = 0
    """The guarantee; 0 leaves compute unlimited."""
    ceiling: int = 0
    """What may be used now."""
    limit: int = 0
    """The highest that the ceiling may become; equal to cores for a hard limit."""
    scale: int = ONE
    """By what a launch's time is multiplied before it is charged; 65536 is 1."""
    overhead_bytes: int = 0
    """What the driver counts for the container beyond what it allocated."""
    context_bytes: int = 0
    """What is held back for each process until its overhead is known."""
    gpu_bytes: int = 0
    """The GPU's real size."""
    burst_ns: int = BURST_NS
    priority: int = 0
    weight: int = 0
    measured: int = 0
    """Use in the last second, for people."""


@dataclass(frozen=True, slots=True)
class LimitGrant:
    """Everything one container is granted, in the order of its GPUs."""

    uid: str
    container: str
    devices: tuple[DeviceGrant, ...]
    flags: GrantFlags = GrantFlags.FAIL_CLOSED


def write_grant(grant: LimitGrant, *, sequence: int = 2, written_ns: int = 0) -> bytes:
    """The file's content; the sequence is even, as of a grant that is whole."""
    if len(grant.devices) > MOST_DEVICES:
        raise LimitFileError(f"{len(grant.devices)} GPUs: expected at most {MOST_DEVICES}")
    content = bytearray(SIZE)
    for at, each in enumerate(grant.devices):
        _DEVICE.pack_into(
            content,
            _BODY + at * _DEVICE.size,
            each.uuid.encode()[:47],
            read_uuid(each.uuid),
            each.memory_bytes,
            each.cores,
            each.ceiling,
            each.limit,
            each.scale,
            each.overhead_bytes,
            each.context_bytes,
            each.gpu_bytes,
            each.burst_ns,
            each.priority,
            each.weight,
            each.measured,
        )
    names = (grant.uid.encode()[:47], grant.container.encode()[:63])
    _NAMES.pack_into(content, _AT_NAMES, *names)
    crc = zlib.crc32(memoryview(content)[_BODY:])
    count, flags = len(grant.devices), int(grant.flags)
    _HEADER.pack_into(content, 0, MAGIC, VERSION, SIZE, sequence, written_ns, crc, count, flags)
    return bytes(content)


def read_grant(content: bytes) -> tuple[LimitGrant, int, int]:
    """The grant, its sequence and when it was written; raises for what is none."""
    if len(content) != SIZE:
        raise LimitFileError(f"{len(content)} bytes: expected {SIZE}")
    header = _HEADER.unpack_from(content)
    magic, version, size, sequence, written_ns, crc, count, flags = header
    if magic != MAGIC or version != VERSION or size != SIZE:
        raise LimitFileError(f"begins with {magic!r} version {version}: expected {MAGIC!r} 1")
    if sequence % 2:
        raise LimitFileError(f"sequence {sequence}: expected an even one")
    if crc != zlib.crc32(content[_BODY:]):
        raise LimitFileError("its CRC does not match its content")
    if count > MOST_DEVICES:
        raise LimitFileError(f"{count} GPUs: expected at most {MOST_DEVICES}")
    uid, container = map(_read_text, _NAMES.unpack_from(content, _AT_NAMES))
    devices = tuple(_read_device(content, _BODY + at * _DEVICE.size) for at in range(count))
    return LimitGrant(uid, container, devices, GrantFlags(flags)), sequence, written_ns


def read_uuid(text: str) -> bytes:
    """The UUID as CUDA tells it; zeros for a name that is no UUID, as simulated GPUs have."""
    try:
        return uuids.UUID(text.removeprefix(_GPU)).bytes
    except ValueError:
        return bytes(16)


@dataclass(frozen=True, slots=True)
class FedDevice:
    """What the agent's loop changes of one GPU in a grant."""

    ceiling: int
    limit: int
    scale: int = ONE
    overhead_bytes: int = 0
    context_bytes: int = 0
    measured: int = 0


def feed_grant(content: bytearray | mmap, devices: list[FedDevice], written_ns: int) -> None:
    """Renew a grant in place; the sequence is odd until everything else is written.

    `content` may be the mapped file itself.
    """
    view = memoryview(content)
    (sequence,) = _SEQUENCE.unpack_from(content, _AT_SEQUENCE)
    # What was left odd by an agent that died is made whole here.
    sequence += 1 + sequence % 2
    _SEQUENCE.pack_into(view, _AT_SEQUENCE, sequence)
    for at, each in enumerate(devices):
        start = _BODY + at * _DEVICE.size
        _PACE.pack_into(view, start + _AT_CEILING, each.ceiling, each.limit, each.scale)
        extra = (each.overhead_bytes, each.context_bytes)
        _EXTRA.pack_into(view, start + _AT_OVERHEAD, *extra)
        _USE.pack_into(view, start + _AT_MEASURED, each.measured)
    _STAMP.pack_into(view, _AT_WRITTEN, written_ns, zlib.crc32(view[_BODY:SIZE]))
    _SEQUENCE.pack_into(view, _AT_SEQUENCE, sequence + 1)


def _read_device(content: bytes, at: int) -> DeviceGrant:
    name, _, *numbers = _DEVICE.unpack_from(content, at)
    memory, cores, ceiling, limit, scale, overhead, context, size, burst, *rest = numbers
    return DeviceGrant(
        uuid=_read_text(name),
        memory_bytes=memory,
        cores=cores,
        ceiling=ceiling,
        limit=limit,
        scale=scale,
        overhead_bytes=overhead,
        context_bytes=context,
        gpu_bytes=size,
        burst_ns=burst,
        priority=rest[0],
        weight=rest[1],
        measured=rest[2],
    )


def _read_text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode(errors="replace")
