"""A file that describes GPUs, their links, their load and their faults, in YAML or JSON.

What the fields say must agree: indexes without gaps, lanes that a GPU has, faults of GPUs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Final, Literal
from uuid import NAMESPACE_OID, uuid5

import msgspec

from slicewise.model import Gpu, InventoryError, MiB, Percent
from slicewise.model.gpu import check_gpus
from slicewise.nvml.driver import DriverError, GpuDevice, Load, Process
from slicewise.nvml.known_gpus import FARTHEST, REMAPPING_FAILED, LinkDistance, Pair, recovery_words

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,90}$")]
Words = Annotated[str, msgspec.Meta(pattern=r"^[!-~][ -~]{0,89}$")]
Bus = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9]$")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}\.[0-9]$")]
Recovery = Literal["none", "reset", "reboot", "drain-peers", "drain"]
Level = Literal["BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]


class ProcessEntry(msgspec.Struct, forbid_unknown_fields=True):
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
    pcie_root: Word = ""
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
    gpus: list[GpuEntry]
    links: list[LinkEntry] = []
    faults: Annotated[list[FaultEntry], msgspec.Meta(max_length=256)] = []
    driver: Word = "580.95.05"
    cuda: Version = "13.0"
    unavailable: bool = False


# As `nvidia-smi topo` names them.
_LEVELS: Final = {"BOARD": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": FARTHEST}
_ACTIONS: Final = {"none": 0, "reset": 1, "reboot": 2, "drain-peers": 3, "drain": 4}
_ONE_NUMA: Final = 40
MAX_LANES: Final = 36


@dataclass(frozen=True, slots=True)
class DescribedGpu:
    """A GPU, its load and whether it answers."""

    device: GpuDevice
    load: Load
    recovery: int
    rows_failed: bool
    lost: bool
    graphics: frozenset[int]


@dataclass(frozen=True, slots=True)
class DescribedFault:
    """A fault as the file orders it; `xid` is None for an ECC error."""

    sequence: int
    uuid: str
    xid: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything the file says, checked."""

    gpus: tuple[DescribedGpu, ...]
    direct: dict[Pair, LinkDistance]
    switches: dict[str, int]
    faults: tuple[DescribedFault, ...]
    driver: str
    cuda: str
    unavailable: bool

    @property
    def pairs(self) -> dict[Pair, LinkDistance]:
        """How near every two GPUs are, over direct lanes and through switches."""
        return {
            pair: LinkDistance(
                near.nvlinks + min(self.switches.get(uuid, 0) for uuid in pair), near.pcie
            )
            for pair, near in self.direct.items()
        }


def read_description(source: str, text: bytes, name: str = "") -> Description:
    """The description in this text; `name` makes invented UUIDs differ from node to node."""
    try:
        document = msgspec.yaml.decode(text, type=Document)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DriverError(f"{source}: {error}; expected GPUs as docs/agent.md describes") from error
    try:
        return _check(document, name)
    except (DriverError, InventoryError) as error:
        raise DriverError(f"{source}: {error}") from error


def _check(document: Document, name: str) -> Description:
    listed = tuple(sorted(_number(document.gpus, name), key=lambda each: each.device.gpu.index))
    gpus = [each.device.gpu for each in listed]
    check_gpus("simulated", gpus)
    if [gpu.index for gpu in gpus] != list(range(len(gpus))):
        raise DriverError(f"gpus: expected every index from 0 to {len(gpus) - 1}, as drivers count")
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    if len({fault.sequence for fault in document.faults}) != len(document.faults):
        raise DriverError("faults: a sequence is used twice; expected a number of its own for each")
    switches = _switch(document.links, uuids)
    direct = _pair(gpus, document.links, uuids)
    for uuid in uuids.values():
        lanes = switches.get(uuid, 0) + sum(
            near.nvlinks for pair, near in direct.items() if uuid in pair
        )
        if lanes > MAX_LANES:
            raise DriverError(f"links: {uuid} has {lanes} lanes: expected at most {MAX_LANES}")
    return Description(
        listed,
        direct,
        switches,
        tuple(_inject(fault, uuids) for fault in document.faults),
        document.driver,
        document.cuda,
        document.unavailable,
    )


def _number(entries: Sequence[GpuEntry], name: str) -> Iterator[DescribedGpu]:
    index = minor = 0
    for at, entry in enumerate(entries):
        single = (entry.uuid, entry.bus) == (None, None) and not entry.processes
        if entry.count < 1 or (entry.count > 1 and not single):
            raise DriverError(
                f"gpus[{at}].count={entry.count}: expected a number from 1 up, "
                "and no uuid, bus or processes beside one above 1"
            )
        index = index if entry.index is None else entry.index
        minor = index if entry.minor is None else entry.minor
        for _ in range(entry.count):
            yield _describe(f"gpus[{at}]", entry, name, (index, minor))
            index, minor = index + 1, minor + 1


def _describe(field: str, entry: GpuEntry, name: str, numbers: tuple[int, int]) -> DescribedGpu:
    index, minor = numbers
    uuid = entry.uuid or f"GPU-{uuid5(NAMESPACE_OID, f'slicewise/{name}/{index}')}"
    recovery = _ACTIONS[entry.recovery]
    trouble = recovery_words(recovery) or (REMAPPING_FAILED if entry.rows_failed else "")
    gpu = Gpu(
        index,
        uuid,
        entry.model,
        MiB(entry.memory),
        minor,
        numa=entry.numa,
        healthy=not trouble,
        mig=entry.mig,
    )
    bus = entry.bus or f"00000000:{index + 1:02X}:00.0"
    return DescribedGpu(
        GpuDevice(gpu, bus, entry.brand, entry.capability, trouble, entry.pcie_root),
        _load(field, entry),
        recovery,
        entry.rows_failed,
        entry.lost,
        frozenset(each.pid for each in entry.processes if each.graphics),
    )


def _load(field: str, entry: GpuEntry) -> Load:
    processes = tuple(
        sorted(
            (
                Process(each.pid, MiB(each.memory), Percent(each.utilization))
                for each in entry.processes
            ),
            key=lambda process: process.pid,
        )
    )
    if len({process.pid for process in processes}) != len(processes):
        raise DriverError(f"{field}.processes: a pid is listed twice on one GPU")
    memory = sum(each.memory for each in processes) if entry.used is None else entry.used
    busy = min(100, sum(each.cores for each in processes))
    cores = busy if entry.utilization is None else entry.utilization
    parts = [(memory, cores), *((each.memory, each.cores) for each in processes)]
    if not all(0 <= part[0] <= entry.memory and 0 <= part[1] <= 100 for part in parts):
        raise DriverError(
            f"{field}: used={memory} utilization={cores}: "
            f"expected 0 to {entry.memory} MiB and 0 to 100 percent, of the GPU and each process"
        )
    return Load(MiB(memory), Percent(cores), processes, entry.temperature, entry.power)


def _pair(
    gpus: Sequence[Gpu], links: Sequence[LinkEntry], uuids: dict[int, str]
) -> dict[Pair, LinkDistance]:
    pairs = {}
    for one, other in combinations(gpus, 2):
        together = one.numa is not None and one.numa == other.numa
        pairs[Pair((one.uuid, other.uuid))] = LinkDistance(0, _ONE_NUMA if together else FARTHEST)
    for at, entry in enumerate(links):
        members = [_find(f"links[{at}].gpus", index, uuids) for index in entry.gpus]
        for pair in combinations(members, 2):
            lanes = 0 if entry.switched else entry.nvlinks
            pairs[Pair(pair)] = LinkDistance(lanes, _LEVELS[entry.pcie])
    return pairs


def _switch(links: Sequence[LinkEntry], uuids: dict[int, str]) -> dict[str, int]:
    switched = [entry for entry in links if entry.switched]
    if len(switched) > 1:
        raise DriverError("links: expected at most one entry with switched: true")
    return {
        _find("links: gpus", index, uuids): entry.nvlinks
        for entry in switched
        for index in entry.gpus
    }


def _inject(fault: FaultEntry, uuids: dict[int, str]) -> DescribedFault:
    field = f"faults: sequence {fault.sequence}"
    if (fault.xid is None) is not fault.ecc:
        raise DriverError(f"{field}: expected either xid or ecc: true")
    return DescribedFault(fault.sequence, _find(f"{field}: gpu", fault.gpu, uuids), fault.xid)


def _find(field: str, index: int, uuids: dict[int, str]) -> str:
    if index not in uuids:
        raise DriverError(f"{field}={index}: expected the index of a listed GPU")
    return uuids[index]
