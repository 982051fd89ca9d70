"""What the ledger knows of one pod, and how it comes to understand it."""

from dataclasses import dataclass
from typing import Protocol

from slicewise.cluster.events import Assume
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.dialects.shared.limits import ContainerLimits
from slicewise.model import (
    Allocation,
    ContainerRequest,
    Host,
    Node,
    Pod,
    Request,
    SignatureState,
    SignedAllocation,
)


class PodReader(Protocol):
    """How pods are understood: by the dialects they are written in."""

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for."""
        ...

    def read_floor(self, pod: Pod, node: Node) -> tuple[ContainerRequest, ...]:
        """What containers ask for there by limits that no annotation or label makes less."""
        ...

    def read_limits(self, pod: Pod, node: Node) -> tuple[ContainerLimits, ...]:
        """What containers could receive there by their limits alone."""
        ...

    def read_host(self, pod: Pod) -> Host:
        """CPU and main memory that the pod asks for."""
        ...

    def read_allocation(self, pod: Pod, node: Node, request: Request) -> Allocation | None:
        """The allocation recorded on the pod for this node; None when there is no record."""
        ...

    def is_adopted(self, pod: Pod, node: Node) -> bool:
        """Whether the ledger may choose the GPUs of a pod that others bound to this node."""
        ...

    def read_target(self, pod: Pod) -> str | None:
        """The node named in an unbound pod's record, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    """What the signature of a record's text was found to be worth."""

    text: str
    signature: str
    state: SignatureState


@dataclass(slots=True)
class PodEntry:
    """What is known of one pod: from the API, from us, or both.

    `unread` says why its request cannot be read, and `problem` what is wrong with its record.
    `signed` is the newest record that was signed for it and `proof` its text and signature;
    `marked` is what unsigned marks of the bound pod last said. Both stay when annotations change.
    What it costs depends on whether it runs where `by_phase` says so.
    `chosen` is its allocation where nothing but the ledger says so, and `pinned` that this is
    being recorded; `waited` says that it was seen before its containers could have started.
    A `tentative` entry is no pod, but one of the nodes a pod may yet be bound to.
    """

    uid: str
    pod: Pod | None = None
    request: Request | None = None
    assumed: Assume | None = None
    confirmed: bool = False
    node: str | None = None
    unread: Problem | None = None
    problem: Problem | None = None
    signed: SignedAllocation | None = None
    proof: tuple[str, str] | None = None
    checked: CheckedSignature | None = None
    marked: Allocation | None = None
    by_phase: bool = False
    chosen: Allocation | None = None
    pinned: bool = False
    waited: bool = False
    tentative: bool = False


def says_the_same(one: Pod, other: Pod) -> bool:
    """Whether two versions of a pod differ in nothing that decides what it holds."""
    return (
        one.node == other.node
        and one.priority == other.priority
        and one.annotations == other.annotations
        and one.labels == other.labels
        and one.oversized == other.oversized
        and one.by_claim == other.by_claim
        and one.containers == other.containers
    )


def problem_of(pod: Pod, trouble: ProblemKind, detail: str) -> Problem:
    return Problem(f"{pod.namespace}/{pod.name}", trouble.value, detail)
