"""What writing to a cluster offers and how it can end: values and one Protocol, no network.

A write whose answer was lost is UNKNOWN: it is settled by reading, never by guessing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from slicewise.model import Pod, PodRecord


class PodKey(Protocol):
    """Which pod is meant; a model Pod is one."""

    @property
    def uid(self) -> str:
        """The pod's UID, so that a namesake is never mistaken for it."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def version(self) -> int:
        """The version it was last seen at; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod by its three names, for callers that hold no Pod."""

    uid: str
    namespace: str
    name: str
    version: int = 0


class WriteStatus(Enum):
    DONE = "done"
    """Bound, or recorded, by this write."""
    REPEATED = "repeated"
    """The pod was on that node with exactly this record already: a harmless repeat."""
    OTHER_RECORD = "other-record"
    """The pod was on that node already, with another record."""
    CONFLICT = "conflict"
    """The pod is on another node."""
    GONE = "gone"
    """There is no such pod any more, it is being deleted, or its name is another pod's now."""
    REFUSED = "refused"
    """The API server said no; nothing was written."""
    BLOCKED = "blocked"
    """A disruption budget does not allow an eviction now."""
    UNKNOWN = "unknown"
    """No answer came, or none that says whether the write was carried out."""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How a write ended, in the API server's words, and the pod where it was read."""

    status: WriteStatus
    detail: str = ""
    pod: Pod | None = None

    @property
    def stands(self) -> bool:
        """Whether the pod carries what was to be written."""
        return self.status in (WriteStatus.DONE, WriteStatus.REPEATED)


BindOutcome = WriteOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """An Event to be shown in `kubectl describe pod`."""

    reason: str
    note: str
    action: str = "Scheduling"
    warning: bool = False


class ClusterWriter(Protocol):
    """Everything that is ever written to a cluster, and the reads that settle it."""

    async def bind(self, pod: PodKey, node: str, record: PodRecord) -> BindOutcome:
        """Put the pod on the node with its record, in one write where the server can."""

    async def settle_bind(
        self, pod: PodKey, node: str, record: PodRecord, *, seconds: float
    ) -> BindOutcome:
        """Read the pod until it is known how a bind ended; REFUSED when the pod is not bound."""

    async def annotate_pod(
        self, pod: PodKey, record: PodRecord, *, version: int | None = None
    ) -> WriteOutcome:
        """Record an allocation on a pod that another binds; only at this version, if given."""

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the API server has it now; None when there is none."""

    def post_event(self, pod: PodKey, event: PodEvent) -> None:
        """Show an event on the pod, some time soon, if the API server takes it."""


class PodEvictions(Protocol):
    """Evicting pods for others, and telling of it."""

    async def annotate_pod(
        self, pod: PodKey, record: PodRecord, *, version: int | None = None
    ) -> WriteOutcome:
        """Record an allocation on a pod that another binds; only at this version, if given."""

    async def find_blocked(self, pods: Sequence[PodKey]) -> dict[str, str]:
        """Which of these pods cannot be evicted with all those before them, by UID, and why."""

    async def evict_pod(self, pod: PodKey) -> WriteOutcome:
        """Evict the pod, unless a disruption budget forbids it."""

    def post_event(self, pod: PodKey, event: PodEvent) -> None:
        """Show an event on the pod, some time soon, if the API server takes it."""
