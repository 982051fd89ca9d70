"""What stands in a file that describes GPUs, field by field.

Every field has a default but the model and its memory; an unknown field is an error.
"""

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,90}$")]
Words = Annotated[str, msgspec.Meta(pattern=r"^[!-~][ -~]{0,89}$")]
Bus = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9]$")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}\.[0-9]$")]
Recovery = Literal["none", "reset", "reboot", "drain-peers", "drain"]
Level = Literal["BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]


class ProcessEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One process on a GPU."""

    pid: Count
    memory: Count = 0
    utilization: Count = 0
    graphics: bool = False


class GpuEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One GPU, or several alike when `count` says so."""

    model: Words
    memory: Count
    count: int = 1
    index: Count | None = None
    minor: Count | None = None
    uuid: Word | None = None
    bus: Bus | None = None
    numa: Count | None = None
    brand: Count = 0
    capability: Count = 80
    mig: bool = False
    lost: bool = False
    recovery: Recovery = "none"
    rows_failed: bool = False
    used: Count | None = None
    utilization: Count | None = None
    temperature: Count | None = None
    power: Count | None = None
    processes: Annotated[list[ProcessEntry], msgspec.Meta(max_length=512)] = []


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True):
    """How near every two of these GPUs are; of several entries for two GPUs the last counts."""

    gpus: list[Count]
    nvlinks: Count = 0
    pcie: Level = "SYS"
    switched: bool = False


class FaultEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A fault that is reported when its sequence number first appears."""

    sequence: Count
    gpu: Count
    xid: Count | None = None
    ecc: bool = False


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    gpus: list[GpuEntry]
    links: list[LinkEntry] = []
    faults: Annotated[list[FaultEntry], msgspec.Meta(max_length=256)] = []
    driver: Word = "580.95.05"
    cuda: Version = "13.0"
    unavailable: bool = False
