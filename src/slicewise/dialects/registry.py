"""Which system a pod speaks for, and one door to all of them.

A pod speaks one dialect; a node may be published by several, and the most exact is believed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from slicewise.dialects.shared.hosts import read_node_host, read_pod_host
from slicewise.dialects.shared.inventory import cordon_gpus, read_counted
from slicewise.dialects.shared.limits import check_containers, find_lone, refuse_mixture
from slicewise.model import Allocation, DialectError, Node, NodeNotice, Pod, PodRecord, Request

TARGETS: Final = ("nvidia.com/predicate-node", "tencent.com/predicate-node")
POOL_LABELS: Final = ("slicewise.io/gpu-pool", "gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool")


class Dialect(Protocol):
    """One system's way of writing requests, allocations and inventories."""

    @property
    def name(self) -> str:
        """What people call the system."""

    @property
    def silent(self) -> bool:
        """Whether the system never tells which GPUs a pod has, so that they are ours to give."""

    @property
    def resources(self) -> frozenset[str]:
        """The resource names this dialect owns."""

    def claims(self, pod: Pod) -> str | None:
        """The resource by which the pod asks for GPUs in this dialect, if it does."""

    def read_request(self, pod: Pod) -> Request:
        """What a claimed pod asks for."""

    def read_allocation(self, pod: Pod, request: Request, node: Node) -> Allocation | None:
        """What is recorded on the pod; None when nothing is."""

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """How the allocation is recorded, as this system's own agents read it."""

    def read_node(self, notice: NodeNotice) -> Node | None:
        """The GPUs this system's agent published; None when it published nothing."""


@dataclass(frozen=True, slots=True)
class Dialects:
    """Several dialects as one; nodes are read by the first that finds GPUs."""

    dialects: Sequence[Dialect]
    _owners: Mapping[str, Dialect] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        owners: dict[str, Dialect] = {}
        for dialect in self.dialects:
            for resource in sorted(dialect.resources):
                owner = owners.setdefault(resource, dialect)
                if owner is not dialect:
                    raise DialectError(
                        f"{resource} is owned by {owner.name} and {dialect.name}: expected one"
                    )
        object.__setattr__(self, "_owners", owners)

    @property
    def resources(self) -> frozenset[str]:
        """Every resource name that any of the dialects owns."""
        return frozenset(self._owners)

    def claim(self, pod: Pod) -> Dialect | None:
        """The dialect in which the pod asks for GPUs; None when it asks for none."""
        check_containers(pod)
        named = {
            self._owners[resource].name
            for container in pod.containers
            for amounts in (container.limits, container.requests)
            for resource in amounts
            if resource in self._owners
        }
        if not named:
            return None
        claims = [
            (resource, dialect)
            for dialect in self.dialects
            if dialect.name in named and (resource := dialect.claims(pod)) is not None
        ]
        refuse_mixture([resource for resource, _ in claims])
        return claims[0][1] if claims else None

    def read_request(self, pod: Pod) -> Request:
        """All that the pod asks for, CPU and main memory included."""
        dialect = self.claim(pod)
        request = Request() if dialect is None else dialect.read_request(pod)
        lone = frozenset() if dialect is None else find_lone(pod, dialect.resources)
        return replace(request, host=read_pod_host(pod), lone=lone)

    def read_allocation(
        self, pod: Pod, node: Node, request: Request | None = None
    ) -> Allocation | None:
        """What is recorded on the pod; None when nothing is, or it asks for no GPU."""
        dialect = self.claim(pod)
        if dialect is None:
            return None
        if request is None:
            request = dialect.read_request(pod)
        return dialect.read_allocation(pod, request, node)

    def is_silent(self, pod: Pod) -> bool:
        """Whether the pod's system never tells which GPUs it has."""
        dialect = self.claim(pod)
        return dialect is not None and dialect.silent

    def read_target(self, pod: Pod) -> str | None:
        """The node that marks name before the pod is bound, as gpu-admission's do."""
        return next((pod.annotations[key] for key in TARGETS if pod.annotations.get(key)), None)

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """How the allocation is recorded; no marks for a pod that asks for no GPU."""
        dialect = self.claim(pod)
        if dialect is None:
            return PodRecord()
        return dialect.record_allocation(pod, request, allocation, node, now_ns=now_ns)

    def read_node(self, notice: NodeNotice) -> Node:
        """The node with its GPUs, its pool, and its CPU and main memory."""
        published = (dialect.read_node(notice) for dialect in self.dialects)
        node = next((found for found in published if found is not None), Node(notice.name))
        pool = next((notice.labels[key] for key in POOL_LABELS if notice.labels.get(key)), None)
        return replace(
            cordon_gpus(node, notice),
            host=read_node_host(notice),
            pool=pool,
            counted=read_counted(notice),
        )
