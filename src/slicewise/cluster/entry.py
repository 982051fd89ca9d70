"""What the ledger knows of one pod, and how it comes to understand it."""

from dataclasses import dataclass
from typing import Protocol

from slicewise.cluster.events import Assume
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.model import Allocation, Node, Pod, Request


class PodReader(Protocol):
    """How pods are understood: by the dialects they are written in."""

    def read_request(self, pod: Pod) -> Request:
        """What the pod asks for."""
        ...

    def read_allocation(self, pod: Pod, node: Node, request: Request) -> Allocation | None:
        """The allocation recorded on the pod for this node; None when there is no record."""
        ...

    def records_nothing(self, pod: Pod) -> bool:
        """Whether the pod's system never records its GPUs, so that the ledger may choose them."""
        ...

    def read_target(self, pod: Pod) -> str | None:
        """The node named in an unbound pod's record, if there is one."""
        ...


@dataclass(slots=True)
class PodEntry:
    """What is known of one pod: from the API, from us, or both.

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
    problem: Problem | None = None
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
        and one.containers == other.containers
    )


def problem_of(pod: Pod, trouble: ProblemKind, detail: str) -> Problem:
    return Problem(f"{pod.namespace}/{pod.name}", trouble.value, detail)
