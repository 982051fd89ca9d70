"""ResourceClaims as the ledger and the agent see them: parts of GPUs, by request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from slicewise.model.allocation import Slice
from slicewise.model.amounts import MiB, Percent
from slicewise.model.gpu import Gpu, Node

DRIVER: Final = "gpu.slicewise.io"
"""The name under which our GPUs are offered to claims, and our device class."""
GRANTED: Final = "slicewise.io/granted"
"""The condition of an allocated device without which no pod is bound to it."""
REFUSED: Final = "slicewise.io/refused"
"""The condition of an allocated device by which its claim is allocated again."""

ENGINE_TAINT: Final = "slicewise.io/engine"
"""The taint of devices that no scheduler allocates, because the engine does."""

TOLERATE_ENGINE: Final = (
    f"tolerations: [{{key: {ENGINE_TAINT}, operator: Exists, effect: NoSchedule}}]"
)
"""What a request says that a scheduler is to allocate in the engine's stead."""

CAPACITIES: Final = ("cores", "memory")
"""What GPUs are divided by."""
AllocationKey = tuple[tuple[str, str, str, str, int, int], ...]
"""One allocation of a claim: another one of the same claim has other shares."""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One result of a claim's allocation: so much of one GPU of one node."""

    request: str
    """The request it answers, without the name of an alternative."""
    pool: str
    device: str
    cores: Percent
    memory: MiB
    share: str = ""
    admin: bool = False
    """Whether it is access for monitoring, which holds nothing."""
    pending: tuple[str, ...] = ()
    """Binding conditions that are not true yet."""
    refused: str = ""
    """Why it may not be bound, where a condition says so."""


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """A pod for which a claim is reserved."""

    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A taint of devices that a request puts up with; an empty key or effect is any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def covers(self, taint: str) -> bool:
        """Whether a taint of this key, without value, that forbids new claims is tolerated."""
        if self.effect not in ("", "NoSchedule") or self.key not in ("", taint):
            return False
        return self.operator == "Exists" or (self.key == taint and not self.value)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What one request of a claim asks for; an amount that it does not name is the whole GPU's."""

    name: str
    device_class: str
    cores: int | None = None
    memory: MiB | None = None
    count: int = 1
    every: bool = False
    """Whether it asks for every GPU that has room."""
    selectors: tuple[str, ...] = ()
    """CEL expressions, all of which must hold."""
    strange: tuple[str, ...] = ()
    """Capacities that it names and that no GPU has."""
    tolerations: tuple[DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimConstraint:
    """What the devices of some requests must have in common, or must all have different."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()
    """The requests that it is about; none is all."""

    def __str__(self) -> str:
        return f"{'distinct' if self.distinct else 'match'}Attribute {self.attribute}"


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """All that a claim asks for; of alternatives, each stands as a request of its own."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    obstacle: str = ""
    """What of its form the engine does not do; empty when it does all."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with what was allocated to it, of our driver alone; without devices it waits.

    `version` grows with every change of the object.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...] = ()
    users: tuple[ClaimUser, ...] = ()
    version: int = 0
    spec: ClaimSpec | None = None
    """What it asks for, kept while nothing was allocated to it, of whatever driver."""
    owner: str = ""
    """The UID of the pod that it was made for, and below what that pod calls it."""
    owner_claim: str = ""
    protected: bool = False
    """Whether it cannot disappear while something is allocated to it."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def refused(self) -> str:
        """Why it is to be allocated again; empty when it is not."""
        return next((each.refused for each in self.devices if each.refused), "")

    @property
    def pending(self) -> bool:
        """Whether it waits for a verdict on what was allocated to it."""
        return not self.refused and any(each.pending for each in self.devices)

    @property
    def key(self) -> AllocationKey:
        """What tells this allocation from an earlier or a later one."""
        return tuple(
            (each.request, each.pool, each.device, each.share, each.cores, each.memory)
            for each in self.devices
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose GPUs it was allocated; one, as schedulers do it."""
        return tuple(dict.fromkeys(each.pool for each in self.devices))

    def slices(self, node: Node) -> tuple[Slice, ...]:
        """What it was allocated of each GPU of a node."""
        return slice_devices((each for each in self.devices if each.pool == node.name), node.gpus)

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that our devices answer, in their order."""
        return tuple(dict.fromkeys(each.request for each in self.devices))


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """A claim with what it asks for."""

    claim: Claim
    spec: ClaimSpec

    @property
    def requests(self) -> tuple[ClaimRequest, ...]:
        return self.spec.requests

    @property
    def constraints(self) -> tuple[str, ...]:
        """What its requests must have in common, in words."""
        return tuple(map(str, self.spec.constraints))


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A device class: the resource that it serves, if it does, and which devices it admits."""

    name: str
    served: str = ""
    selectors: tuple[str, ...] = ()
    configured: bool = False
    """Whether it has parameters for drivers."""


class SemanticVersion(str):
    """An attribute that is a version such as 580.95.5."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A GPU as it is offered to claims: what they may have of it together, and its whole."""

    node: str
    name: str
    cores: int
    memory: int
    whole_cores: int
    whole_memory: int
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    @property
    def uuid(self) -> str:
        return str(self.attributes.get("uuid", ""))


def slice_devices(devices: Iterable[ClaimedDevice], gpus: Iterable[Gpu]) -> tuple[Slice, ...]:
    """What the devices hold of each GPU, added up; devices of no such GPU hold nothing."""
    indexes = {gpu.device: gpu.index for gpu in gpus}
    held: dict[int, tuple[int, int]] = {}
    for each in devices:
        index = indexes.get(each.device)
        if index is not None and not each.admin:
            cores, memory = held.get(index, (0, 0))
            held[index] = cores + each.cores, memory + each.memory
    return tuple(
        Slice(index, Percent(cores), MiB(memory)) for index, (cores, memory) in sorted(held.items())
    )
