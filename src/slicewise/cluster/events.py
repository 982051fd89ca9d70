"""What happens to a cluster, as values: the only way into the ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slicewise.cluster.quota import Quota
from slicewise.model import Allocation, Host, Node, Pod, RecordTrust, Request
from slicewise.model.claim import AllocationKey, Claim


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

    It takes the place of what was held for the pod before; no allocations hold nothing. The pod
    counts once in its namespace's quota, by what it `demands` of each model that it may go to,
    until it is bound or gone, and at the latest until the `quota_deadline`.
    """

    pod: Pod
    request: Request
    allocations: tuple[Allocation, ...]
    deadline: float
    demands: Mapping[str, int] = field(default_factory=dict)
    quota_deadline: float = 0.0

    def assumptions(self) -> Iterator[Assume]:
        """What counts on each of the nodes, as if it were a pod of its own."""
        for allocation in self.allocations:
            yield Assume(
                uid=f"{self.pod.uid}@{allocation.node}",
                namespace=self.pod.namespace,
                name=self.pod.name,
                request=self.request,
                allocation=allocation,
                deadline=self.deadline,
                priority=self.pod.priority,
            )


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


@dataclass(frozen=True, slots=True)
class QuotaSeen:
    """The quota was read, or can no longer be."""

    quota: Quota


@dataclass(frozen=True, slots=True)
class TrustChanged:
    """The published keys or the policy beside them changed, which concerns these pods."""

    trust: RecordTrust | None
    uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A ResourceClaim was listed, added or changed; its version is in it."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimGone:
    """A ResourceClaim was deleted for good; a UID never comes back."""

    uid: str


@dataclass(frozen=True, slots=True)
class GrantClaim:
    """We are about to grant this allocation of a claim; it counts from now on."""

    uid: str
    key: AllocationKey


@dataclass(frozen=True, slots=True)
class AllocateClaims:
    """We are about to allocate these claims, each with its devices; all count from now on.

    So does what their pod asks of the node beside GPUs, until the pod itself is counted there.
    """

    claims: tuple[Claim, ...]
    host: Host = field(default_factory=Host)


@dataclass(frozen=True, slots=True)
class ClaimUsed:
    """The pod that a claim was allocated for is bound or gone, and counts by itself if at all."""

    uid: str


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """What we were about to allocate to a claim was not written, and never will be."""

    uid: str


_FromCluster = NodeSeen | NodeGone | PodSeen | PodGone | GpuHealth | QuotaSeen | TrustChanged
_FromUs = Assume | Extend | Hold | Confirm | Forget | Pin | Expire
ClaimEvent = ClaimSeen | ClaimGone | GrantClaim | AllocateClaims | ClaimUsed | ReleaseClaim
Event = _FromCluster | _FromUs | ClaimEvent
