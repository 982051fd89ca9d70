"""What the API says of a pod and of a node, before any dialect has read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from slicewise.model.quantity import Quantity
from slicewise.model.request import Role

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
NO_AMOUNTS: Final[Mapping[str, Quantity]] = MappingProxyType({})


class Phase(Enum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def terminal(self) -> bool:
        """Whether the pod's containers have ended for good."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod: its name, role and amounts as written."""

    name: str
    limits: Mapping[str, Quantity] = field(default_factory=lambda: NO_AMOUNTS)
    requests: Mapping[str, Quantity] = field(default_factory=lambda: NO_AMOUNTS)
    role: Role = Role.MAIN


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as listed: containers in the order of the spec, init containers first.

    `version` grows with every change of the object; `deleting` says that deletion has started.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    node: str | None = None
    phase: Phase = Phase.PENDING
    deleting: bool = False
    priority: int = 0
    version: int = 0
    created: int = 0
    """Seconds since 1970 by the API server's clock; 0 where it is not known."""
    oversized: tuple[tuple[str, int], ...] = ()
    """Annotations and labels that were too long to keep, with their bytes: it cannot be read."""
    ends: int = 0
    """When its deletion is due, in seconds since 1970; 0 where it is not being deleted."""
    preempts: bool = True
    """Whether pods of lower priority may be evicted for it."""

    by_claim: bool = False
    """Whether a ResourceClaim serves the GPUs that it asks for by name."""

    @property
    def main_containers(self) -> tuple[Container, ...]:
        """The containers under `spec.containers`, whose positions the dialects count."""
        return tuple(each for each in self.containers if each.role is Role.MAIN)


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """A node as listed: what its agents published, not yet read as GPUs."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    capacity: Mapping[str, Quantity] = field(default_factory=lambda: NO_AMOUNTS)
    allocatable: Mapping[str, Quantity] = field(default_factory=lambda: NO_AMOUNTS)
    version: int = 0
    ready: bool = True
    """Whether its Ready condition is true, or absent."""
    unschedulable: bool = False
    """Whether it is cordoned."""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """Annotations and labels that record an allocation on its pod."""

    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
