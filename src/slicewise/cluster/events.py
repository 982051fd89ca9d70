"""What happens to a cluster, as values: the only way into the ledger."""

from dataclasses import dataclass

from slicewise.model import Allocation, Node, Pod, Request


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was listed, added or changed; `version` grows with every change."""

    node: Node
    version: int = 0


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node was deleted, at this version."""

    name: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod was listed, added or changed; its version and record are in it."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod was deleted for good; a UID never comes back."""

    uid: str


@dataclass(frozen=True, slots=True)
class Assume:
    """We are about to record this allocation; it counts from now until the deadline."""

    uid: str
    namespace: str
    name: str
    request: Request
    allocation: Allocation
    deadline: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Extend:
    """An allocation that was assumed counts until this deadline instead."""

    uid: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody may bind the pod to any of these nodes; all count until it is known which.

    It takes the place of what was held for the pod before; no allocations hold nothing.
    """

    pod: Pod
    request: Request
    allocations: tuple[Allocation, ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class Confirm:
    """The API took the allocation: it counts until the pod itself says otherwise."""

    uid: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The API refused the allocation: it no longer counts."""

    uid: str


@dataclass(frozen=True, slots=True)
class Pin:
    """The allocation of an adopted pod is being recorded, so it must not move; or no longer is."""

    uid: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Expire:
    """Time has come to this point; unconfirmed assumptions past their deadline end."""

    now: float


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """A GPU became unhealthy or healthy again, whatever its node's inventory says."""

    node: str
    uuid: str
    healthy: bool


_FromCluster = NodeSeen | NodeGone | PodSeen | PodGone | GpuHealth
_FromUs = Assume | Extend | Hold | Confirm | Forget | Pin | Expire
Event = _FromCluster | _FromUs
