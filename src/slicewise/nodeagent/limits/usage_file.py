"""The `usage` file: what a container's processes say they use, as bytes that they write.

A tenant can write anything there, so everything is checked, nothing is mapped, and no figure
decides about another tenant. Whether a process lives is told by its record lock, which the kernel
drops with it and which names the host's PID.
"""

import fcntl
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.nodeagent.limits.grant_file import MOST_DEVICES, LimitFileError

MAGIC: Final = b"SWUSAGE1"
VERSION: Final = 1
SIZE: Final = 122_880
SLOTS: Final = 256
METERS: Final = 8192
"""Where slots begin; what is in front of them is read ten times a second."""
LOCKS: Final = 1 << 20
"""The byte that a process locks for its slot, counted from here."""

_HEADER: Final = struct.Struct("<8sIIIIQ4Q")
_DEVICE: Final = struct.Struct("<qqQQQQQQQQQ")
_AT_DEVICES: Final = 4096
_DEVICE_SIZE: Final = 256
_SLOT: Final = struct.Struct(f"<II7Q{MOST_DEVICES}q{MOST_DEVICES}q{MOST_DEVICES}Q")
_SLOT_SIZE: Final = 448
_LOCK: Final = struct.Struct("hhqqi4x")


@dataclass(frozen=True, slots=True)
class DeviceMeters:
    """What the processes of a container count together on one GPU."""

    spent_ns: int
    credited_ns: int
    stamp_ns: int
    throttled_ns: int
    launches: int
    timed: int
    timed_ns: int
    refused: int
    refused_bytes: int
    last_launch_ns: int
    gave_up: int


@dataclass(frozen=True, slots=True)
class UsageSlot:
    """One process: its PID in its own namespace, and bytes by GPU."""

    index: int
    pid: int
    start_ticks: int
    contexts: int
    used: tuple[int, ...]
    asking: tuple[int, ...]


def write_usage(created_ns: int) -> bytes:
    """A usage file in which nobody has a slot."""
    header = _HEADER.pack(
        MAGIC, VERSION, SIZE, SLOTS, MOST_DEVICES, created_ns, *(0 for _ in range(4))
    )
    return header.ljust(SIZE, b"\0")


def check_header(content: bytes) -> tuple[int, ...]:
    """The words of slots in use; raises for what is no usage file."""
    if len(content) < _HEADER.size:
        raise LimitFileError(f"{len(content)} bytes: expected {SIZE}")
    magic, version, size, slots, devices, _, *active = _HEADER.unpack_from(content)
    if (magic, version, size, slots, devices) != (MAGIC, VERSION, SIZE, SLOTS, MOST_DEVICES):
        raise LimitFileError("its header was changed")
    return tuple(active)


def read_meters(content: bytes, devices: int) -> tuple[DeviceMeters, ...]:
    """The meters of so many GPUs, from what is in front of the slots."""
    check_header(content)
    if len(content) < METERS:
        raise LimitFileError(f"{len(content)} bytes: expected {SIZE}")
    found = tuple(
        DeviceMeters(*_DEVICE.unpack_from(content, _AT_DEVICES + at * _DEVICE_SIZE))
        for at in range(devices)
    )
    if any(each.spent_ns < 0 or each.credited_ns < 0 for each in found):
        raise LimitFileError("it counts time below zero")
    return found


def read_slots(content: bytes, sizes: Sequence[int]) -> tuple[UsageSlot, ...]:
    """The slots in use; raises where one says what cannot be on GPUs of these sizes."""
    active = check_header(content)
    if len(content) != SIZE:
        raise LimitFileError(f"{len(content)} bytes: expected {SIZE}")
    found = []
    for index in range(SLOTS):
        if not active[index // 64] >> index % 64 & 1:
            continue
        fields = _SLOT.unpack_from(content, METERS + index * _SLOT_SIZE)
        state, pid, start_ticks, *_ = fields
        contexts, amounts = fields[8], fields[9:]
        used, asking = amounts[:MOST_DEVICES], amounts[MOST_DEVICES : 2 * MOST_DEVICES]
        if any(not 0 <= amount <= size for amount, size in zip(used, sizes, strict=False)):
            raise LimitFileError(f"slot {index} uses what its GPU does not have")
        if any(used[len(sizes) :]):
            raise LimitFileError(f"slot {index} uses a GPU that was not granted")
        if state:
            count = len(sizes)
            slot = UsageSlot(index, pid, start_ticks, contexts, used[:count], asking[:count])
            found.append(slot)
    return tuple(found)


def find_holder(file: int, slot: int) -> int | None:
    """The host's PID of the process that holds the slot; None when nobody does."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, LOCKS + slot, 1, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid
