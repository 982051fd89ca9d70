"""How one agent runs; checked once at start."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from slicewise.dialects import DEFAULT
from slicewise.dialects.gpushare.names import GIB
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.model import MiB
from slicewise.nodeagent.plugin.offers import MOST_UNITS
from slicewise.nodeagent.usage.sampler import INTERVAL_SECONDS

DIALECTS: Final = DEFAULT.default_editions


class IdentityMode(Enum):
    """How it is known whose units a call is about."""

    CDI = "cdi"
    """Exactly: the container is described to the runtime just before it starts."""
    MATCH = "match"
    """By size and age at admission, and verified before the start."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the host keeps things; the agent must see them under the same paths as the host."""

    plugins: Path = Path("/var/lib/kubelet/device-plugins")
    """The kubelet's folder of device plugin sockets."""
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """The kubelet's pod-resources socket."""
    cdi: Path = Path("/var/run/cdi")
    """The folder in which the runtime looks for CDI specs."""
    vendor_cdi: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    """The folders in which NVIDIA's own specs are."""
    dev: Path = Path("/dev")
    """The folder of device nodes."""
    state: Path = Path("/var/lib/slicewise")
    """The agent's own notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How one agent runs."""

    node: str
    """The name of the node."""
    dialects: tuple[str, ...] = DIALECTS
    """The systems whose resources are offered."""
    share_unit: MiB = GIB.memory_unit
    """gpushare's unit of memory."""
    identity: IdentityMode | None = None
    """How owners are known; none asks the runtime."""
    paths: Paths = field(default_factory=Paths)
    """Where things are."""
    places: GpuManagerPaths = field(default_factory=GpuManagerPaths)
    """Where gpu-manager keeps things."""
    require_gpus: bool = True
    """Whether a GPU without its device node is an error."""
    record_seconds: float = 10.0
    """How long a start waits for the record of a pod that has none yet."""
    watch_seconds: float = 5.0
    """How long a start waits for the API server's watch to tell of its pod."""
    sample_seconds: float = INTERVAL_SECONDS
    """After how long it is read again who uses how much of the GPUs."""
    most_units: int = MOST_UNITS
    """How many units of one resource the kubelet is told of, where another carries the GPUs."""
    sweep_seconds: float = 60.0
    """After how long leftovers are looked for again."""
