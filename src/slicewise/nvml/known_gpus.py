"""Every GPU ever seen: one that stops answering stays listed, and is listed as unhealthy.

Pods hold slices of a GPU by its index, so a lost GPU must not take its index with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.model import Links
from slicewise.nvml.driver import GpuDevice, Hardware

GONE: Final = "lost"
REMAPPING_FAILED: Final = "has run out of spare memory rows"
# What NVML's recovery action says a GPU needs before it can be used again.
_RECOVERIES: Final = {
    1: "needs a reset",
    2: "needs its node rebooted",
    3: "needs its peers drained",
    4: "needs draining and a reset",
    5: "needs its IMEX domain recovered",
    6: "needs its bus reset",
    7: "needs its system rebooted",
}
FARTHEST: Final = 50

Pair = frozenset[str]


def recovery_words(action: int) -> str:
    """What a GPU in need of this recovery action lacks; empty when it needs none."""
    return _RECOVERIES.get(action, f"needs recovery action {action}") if action else ""


@dataclass(frozen=True, slots=True)
class LinkDistance:
    """How near two GPUs are: NVLink lanes between them, and NVML's common-ancestor level."""

    nvlinks: int = 0
    pcie: int = FARTHEST


@dataclass(frozen=True, slots=True)
class DriverReading:
    """What a driver says at one moment: the GPUs that answer, and how near each two are."""

    gpus: tuple[GpuDevice, ...]
    pairs: Mapping[Pair, LinkDistance]
    driver: str
    cuda: str


class KnownGpus:
    """Remembers GPUs by UUID, and adds those that no longer answer to what does."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuDevice] = {}
        self._pairs: dict[Pair, LinkDistance] = {}

    def complete(self, reading: DriverReading) -> Hardware:
        """The hardware with every remembered GPU whose place no other GPU has taken."""
        self._pairs.update(reading.pairs)
        listed = {device.gpu.uuid: device for device in reading.gpus}
        indexes = {device.gpu.index for device in reading.gpus}
        minors = {device.gpu.minor for device in reading.gpus}
        for uuid, device in list(self._gpus.items()):
            if uuid in listed:
                continue
            if device.gpu.index in indexes or device.gpu.minor in minors:
                # The driver numbers its GPUs again after one was taken out for good.
                del self._gpus[uuid]
                continue
            listed[uuid] = replace(device, gpu=replace(device.gpu, healthy=False), trouble=GONE)
        self._gpus.update({device.gpu.uuid: device for device in reading.gpus})
        gpus = tuple(sorted(listed.values(), key=lambda device: device.gpu.index))
        return Hardware(gpus, self._link(gpus), reading.driver, reading.cuda)

    def _link(self, gpus: Sequence[GpuDevice]) -> Links | None:
        if len(gpus) < 2:
            return None
        uuids = [device.gpu.uuid for device in gpus]
        far = LinkDistance()
        near = [
            [
                LinkDistance(0, 0) if one == other else self._pairs.get(Pair((one, other)), far)
                for other in uuids
            ]
            for one in uuids
        ]
        return Links(
            tuple(tuple(pair.nvlinks for pair in row) for row in near),
            tuple(tuple(pair.pcie for pair in row) for row in near),
        )
