"""What a dialect is: a name, the keys it reads, and four parts that each face one neighbour.

`pods` and `node` translate what the API server shows, `agent` what a container on a node
receives, `scheduler` which routes its users have configured. A part that was forgotten is an
error when the dialect is built, which is when the program starts.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol

from slicewise.dialects.shared.injection import ContainerGpus, Injection, no_flag
from slicewise.dialects.shared.limits import AmountRule
from slicewise.dialects.shared.offers import OfferedEdition
from slicewise.dialects.shared.publication import NodeFacts, Publication
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute
from slicewise.model import (
    STRONGEST,
    Allocation,
    Container,
    DialectError,
    Isolation,
    MiB,
    Node,
    NodeNotice,
    Pod,
    PodRecord,
    Request,
    Share,
)

Limits = Mapping[str, int]


class PodPart(Protocol):
    """How pods ask for GPUs and how their allocations are recorded."""

    @property
    def resources(self) -> frozenset[str]:
        """The resource names this dialect owns."""

    @property
    def records_nothing(self) -> bool:
        """Whether the system never tells which GPUs a pod has, so that they are ours to choose."""

    def adopted_on(self, pod: Pod, node: Node) -> bool:
        """Whether GPUs are ours to choose for a pod that was bound there past our extender."""

    @property
    def divisible(self) -> frozenset[str]:
        """Resources of which annotations may ask for parts, so that limits alone say no least."""

    @property
    def target_keys(self) -> tuple[str, ...]:
        """Annotations that name the pod's node before it is bound."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The annotations and labels of pods that are read or written, beside our own record."""

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """How those begin that are named after containers."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The annotations and labels of pods that the system writes, and no tenant may.

        One that ends in `*` stands for all that begin so.
        """

    @property
    def amount_rules(self) -> tuple[AmountRule, ...]:
        """Which amounts a GPU can serve, where not every amount is."""

    def claims(self, pod: Pod) -> str | None:
        """The resource by which the pod asks for GPUs in this dialect, if it does."""

    def read_request(self, pod: Pod) -> Request:
        """What a claimed pod asks for."""

    def most_shares(self, container: Container) -> tuple[tuple[Share, ...], ...]:
        """What the container's limits alone could bring it, by set of names; never refuses."""

    def read_allocation(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        """What is recorded on the pod; None when nothing is."""

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """How the allocation is recorded, as this system's own agents read it."""

    def write_limits(self, pod: Pod, what: str, amount: int) -> Limits:
        """The limits that ask for this much `memory`, `cores` or so many `gpus`.

        Empty where the system cannot say it.
        """


def no_unit(_: NodeNotice, __: Node) -> MiB | None:
    """For systems whose unit is the same on every node."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLabel:
    """The label that makes a system's device plugin run on a node, and what it then reports."""

    key: str
    value: str
    resource: str
    expected: bool = False
    """Whether a node that reports the resource without the label is worth a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart:
    """What the system's agents publish on a Node, read and written."""

    read_node: Callable[[NodeNotice], Node | None]
    """The GPUs this system's agent published; None when it published nothing."""
    publish: Callable[[NodeFacts, frozenset[str]], Publication]
    """What our agent publishes for the system's scheduler, given the editions it offers."""
    pool_labels: tuple[str, ...] = ()
    """Labels that name the node's pool."""
    heartbeat: str | None = None
    """The annotation in which the system's agent says that it lives."""
    plugin_label: PluginLabel | None = None
    unlimited_label: tuple[str, str] | None = None
    """The label and its value by which administrators switch the system's limits off there."""
    read_unit: Callable[[NodeNotice, Node], MiB | None] = no_unit
    """What one unit of the system's memory means on a node; None when it does not offer any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLinks:
    """How links under the host's /dev are known for a system's own, and whose they are."""

    prefixes: tuple[str, ...]
    """How their names begin."""
    digest: Callable[[Iterable[str]], str]
    """What stands in the names of the links of these units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPart:
    """What a node's agent offers for the system, and what its containers receive."""

    editions: tuple[OfferedEdition, ...]
    """The resources that may be offered to the kubelet, one edition per set of names."""
    inject: Callable[[ContainerGpus], Injection]
    """What a container receives with its GPUs."""
    flag: Callable[[ContainerGpus, int], PodRecord] = no_flag
    """What the system's tools look for on a pod that has started, at this time in nanoseconds."""
    flag_times: frozenset[str] = frozenset()
    """Annotations of `flag` that say when, whose change alone is no reason to write."""
    isolation: Isolation = STRONGEST
    """The strongest tiers that containers have which name none."""
    links: HostLinks | None = None
    """The links that `inject` makes under the host's /dev, if it makes any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPart:
    """How the system's users have their scheduler call an extender."""

    routes: tuple[ExtenderRoute, ...]
    """The paths that a scheduler posts to."""
    configs: tuple[ExtenderConfig, ...]
    """What kube-scheduler's configuration says, one for each way to run the system."""
    views: tuple[SnapshotRoute, ...] = ()
    """The paths at which people and tools look at the cluster."""
    policy: str | None = None
    """How its users know pods to be placed, where nobody asks for a policy; None is as any."""


_ABSENT: Final[Any] = object()
_PARTS: Final = {"pods": PodPart, "node": NodePart, "agent": AgentPart, "scheduler": SchedulerPart}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One system; every part is required, and `__post_init__` says which was forgotten."""

    name: str
    """What people call the system."""
    keys: tuple[str, ...] = _ABSENT
    """How the labels, annotations and resources begin that the dialect reads."""
    pods: PodPart = _ABSENT
    node: NodePart = _ABSENT
    agent: AgentPart = _ABSENT
    scheduler: SchedulerPart = _ABSENT
    in_unit: "Callable[[MiB, bool], Dialect] | None" = None
    """The same where memory is counted in another unit, on every node that tells none if the flag
    says so; None where there is but one."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) is _ABSENT:
                raise DialectError(f"dialect {self.name}: {each.name} is missing")
        for name, kind in _PARTS.items():
            members = [member for member in vars(kind) if not member.startswith("_")]
            lacking = [each for each in members if not hasattr(getattr(self, name), each)]
            if lacking:
                raise DialectError(f"dialect {self.name}: {name} has no {', '.join(lacking)}")
