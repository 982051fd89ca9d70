"""How one agent runs; checked once at start."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from slicewise.dialects import DEFAULT
from slicewise.dialects.gpushare.pods import GIB
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.kubelet.dra_plugin import DraFolders
from slicewise.model import MiB
from slicewise.nodeagent.plugin.offers import MOST_UNITS
from slicewise.nodeagent.usage.sampler import INTERVAL_SECONDS

DIALECTS: Final = DEFAULT.default_editions
CONTEXT_MIB: Final = MiB(256)
CLAIMS_LABEL: Final = "slicewise.io/dra"


class IdentityMode(Enum):
    """How the container behind a call of the kubelet is identified."""

    CDI = "cdi"
    """Exactly: a CDI spec is written for the container just before it starts."""
    MATCH = "match"
    """By matching request size and age at admission, verified before the start."""


class ClaimsMode(Enum):
    """Whether the node's GPUs are given out by ResourceClaims."""

    OFF = "off"
    """By resource names alone."""
    ALL = "all"
    """By ResourceClaims alone."""
    SHARED = "shared"
    """By both, each GPU; an extender grants what claims are allocated."""
    ENGINE = "engine"
    """By both, each GPU; an extender allocates claims by its own policy."""

    @property
    def shares(self) -> bool:
        """Whether claims get parts of GPUs beside pods that ask by resource names."""
        return self in (ClaimsMode.SHARED, ClaimsMode.ENGINE)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What limits take to be so of a node's driver, until hardware shows it."""

    driver_tested: bool = False
    """Whether the driver's own memory limits were tested on this node."""
    rounding: float = 0.5
    """What each process' whole percentage of compute is taken to lack."""
    timing: bool = True
    """Whether launches are timed by events, which is how their cost is known."""
    context: MiB = CONTEXT_MIB
    """Memory held back for a process until it is known what its context takes."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths on the host, which the agent must see under the same names."""

    plugins: Path = Path("/var/lib/kubelet/device-plugins")
    """The kubelet's folder of device plugin sockets."""
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """The kubelet's pod-resources socket."""
    dra: DraFolders = field(default_factory=DraFolders)
    """The kubelet's folders of DRA plugins."""
    cdi: Path = Path("/var/run/cdi")
    """The folder in which the runtime looks for CDI specs."""
    vendor_cdi: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    """The folders in which NVIDIA's own specs are."""
    dev: Path = Path("/dev")
    """The folder of device nodes."""
    state: Path = Path("/var/lib/slicewise")
    """What the agent must remember over a restart."""
    limits: Path = Path("/run/slicewise/limits")
    """Grants and usages of limited containers, on a tmpfs of the agent's own."""
    limiter: Path = Path("/usr/lib/slicewise/libslicewise-limit.so")
    """The limiter library that containers are given; without it, none is limited."""
    mps_pipe: Path | None = None
    """The pipe folder of the node's MPS daemon; none offers no tier of MPS."""
    cgroups: Path = Path("/sys/fs/cgroup")
    """Where cgroup v2 is mounted, with the pods of the whole node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    node: str
    """The name of the node."""
    dialects: tuple[str, ...] = DIALECTS
    """The systems whose resources are offered."""
    share_unit: MiB = GIB.memory_unit
    """gpushare's unit of memory."""
    claims: ClaimsMode | None = None
    """Whether GPUs are given out by ResourceClaims; none takes the word of the Node's label."""
    evict_unhealthy: bool = False
    """Whether pods with claims are deleted from GPUs that become unhealthy."""
    identity: IdentityMode | None = None
    """How containers are identified; none asks the runtime."""
    paths: Paths = field(default_factory=Paths)
    """Paths on the host."""
    places: GpuManagerPaths = field(default_factory=GpuManagerPaths)
    """Paths of gpu-manager."""
    require_gpus: bool = True
    """Whether a GPU without its device node is an error."""
    record_seconds: float = 10.0
    """How long a start waits for the record of a pod that has none yet."""
    watch_seconds: float = 5.0
    """How long a start waits for the watch to show its pod."""
    sample_seconds: float = INTERVAL_SECONDS
    """Seconds between two readings of usage."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """What limits take to be so of this node's driver."""
    most_units: int = MOST_UNITS
    """Most units of one resource to offer as devices, where another resource brings the GPU."""
    sweep_seconds: float = 60.0
    """Seconds between two runs of the garbage collection."""
