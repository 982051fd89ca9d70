"""What the agent asks of a driver, whether NVML or a simulated one answers.

GPUs are named by UUID; index and minor number are facts about a GPU, never its name.
Everything here may be called from any thread, and may raise `DriverError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from slicewise.model import Gpu, Links, MiB, Percent, SlicewiseError

# The kinds of fault. An XID comes with its number; a lost GPU no longer answers at all.
XID: Final = "xid"
ECC: Final = "ecc"
LOST: Final = "lost"


class DriverError(SlicewiseError):
    """The driver cannot be loaded, or has stopped answering."""


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU with what other systems publish of it beside the model's facts.

    `capability` is the compute capability with its digits run together, 86 for 8.6.
    `trouble` is a state that lasts, in words, and empty when the GPU is healthy.
    `pcie_root` is the PCIe root complex above it, such as pci0000:00, and empty when unknown.
    """

    gpu: Gpu
    bus: str
    brand: int = 0
    capability: int = 0
    trouble: str = ""
    pcie_root: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a node has: its GPUs in index order, their links, and the driver's versions."""

    gpus: tuple[GpuDevice, ...]
    links: Links | None
    driver: str
    cuda: str


@dataclass(frozen=True, slots=True)
class Process:
    """One process on one GPU; the PID is the host's."""

    pid: int
    memory: MiB
    cores: Percent


@dataclass(frozen=True, slots=True)
class Load:
    memory: MiB
    cores: Percent
    processes: tuple[Process, ...] = ()
    temperature: int | None = None
    power_milliwatts: int | None = None


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Something the driver reported of a GPU: an XID, ECC errors, or that it is lost."""

    uuid: str | None
    kind: str
    xid: int | None = None
    detail: str = ""


class Driver(Protocol):
    """The questions; every answer is a fresh reading."""

    def hardware(self) -> Hardware:
        """The GPUs there are; one that cannot be asked is listed as unhealthy if ever seen."""

    def loads(self) -> Mapping[str, Load]:
        """The load of every GPU that answers, by UUID."""

    def compute(self) -> Mapping[str, Mapping[int, int]]:
        """Percent of compute that processes used in the last second, by UUID and PID.

        It is asked ten times a second, and leaves out GPUs that do not answer.
        """

    def wait_faults(self, seconds: float) -> Sequence[GpuFault]:
        """Faults reported within so many seconds; returns as soon as there is one."""

    def close(self) -> None:
        """Close the driver; calling again is harmless."""
