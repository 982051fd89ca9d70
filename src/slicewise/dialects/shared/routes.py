"""The paths by which schedulers, tools and people reach an extender, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from slicewise.model import Snapshot


class Verb(Enum):
    """What a scheduler asks of an extender."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """How one system's routes differ."""

    bad_body: int = 200
    """Status for a body that cannot be decoded; 200 carries the reason in `Error`."""
    commits: bool = False
    """Whether the decision is written in the filter."""
    places: bool = False
    """Whether one node is left over and its GPUs are held, so that nothing need be scored."""
    counts_free: bool = False
    """Whether points are free GPUs of the wanted model, not the policy's."""
    holds: bool = False
    """Whether the scheduler binds by itself, so that a filter holds GPUs on its last nodes."""


@dataclass(frozen=True, slots=True)
class ExtenderRoute:
    """One path that a scheduler posts to."""

    path: str
    verb: Verb
    options: RouteOptions = RouteOptions()
    may_commit: bool = False
    """Whether the filter commits where the extender is told to commit in filters."""


@dataclass(frozen=True, slots=True)
class SnapshotRoute:
    """One path that shows the cluster as the system's own tools show it."""

    path: str
    show: Callable[[Snapshot, str | None], Mapping[str, Any]]
    """From the cluster, and the node's name where the path ends in one, to a JSON document."""
    by_node: bool = False
    """Whether the path may end in the name of a node."""


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """What kube-scheduler's configuration says of the system's extender."""

    name: str
    path: str
    verbs: Mapping[str, str]
    """The last part of the path for `filter`, `prioritize`, `preempt` and `bind`, where asked."""
    resources: tuple[str, ...] = ()
    ignored: bool = False
    """Whether the scheduler itself does not count the resources."""
    ignorable: bool = False
    """Whether pods are scheduled while the extender does not answer."""
    node_names: bool = True
    """Whether nodes are sent by name alone."""
