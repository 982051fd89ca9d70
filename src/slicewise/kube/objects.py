"""What we read of Kubernetes objects: structs that name only the fields used, and model values.

Equal containers, label sets and names are interned, for a cluster repeats them thousands of
times. Of labels, annotations and amounts only those are kept that some reader needs.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from slicewise.model import Container, NodeNotice, Phase, Pod, Role

T = TypeVar("T")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
# A pod just created has no phase yet.
_PHASES: Final = {"": Phase.PENDING} | {phase.value: phase for phase in Phase}
_SHARED: Final = 1 << 16


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class ResourcesBody(msgspec.Struct, gc=False):
    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class ContainerBody(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    resources: ResourcesBody | None = None
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    containers: Sequence[ContainerBody] = []
    init_containers: Sequence[ContainerBody] | None = None
    node_name: str | None = None
    priority: int | None = None


class PodStatus(msgspec.Struct, gc=False):
    phase: str = ""


class PodBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class ConditionBody(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool = False


class NodeStatus(msgspec.Struct, gc=False):
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    conditions: list[ConditionBody] | None = None


class NodeBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ConfigMapBody(msgspec.Struct, gc=False):
    metadata: Metadata
    data: dict[str, str] | None = None


class ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}, gc=False):
    """The metadata of a list: its version and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListBody(msgspec.Struct, Generic[T]):
    metadata: ListMetadata
    items: list[T] | None = None


class WatchBody(msgspec.Struct):
    """One line of a watch, its object not yet read."""

    type: str
    object: msgspec.Raw


class StatusBody(msgspec.Struct):
    """The Status that comes with a refusal."""

    message: str = ""
    reason: str = ""
    code: int = 0


class BareBody(msgspec.Struct):
    """An object of which only the metadata matters."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class ConfigMap:
    namespace: str
    name: str
    data: Mapping[str, str]
    version: int = 0


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys of an object are kept, by prefix."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ("cpu", "memory")


class InternPool:
    """Interns equal values; it is emptied when full, since interning is only an optimization."""

    def __init__(self, size: int = _SHARED) -> None:
        self._size = size
        self._kept: dict[Hashable, Any] = {}

    def intern(self, key: Hashable, value: T) -> T:
        """The interned value of this key; this one if there was none."""
        if len(self._kept) >= self._size:
            self._kept.clear()
        kept: T = self._kept.setdefault(key, value)
        return kept


class ObjectReader:
    """Turns structs into model values, interning what repeats."""

    def __init__(self, keep: KeyFilter) -> None:
        self._filter = keep
        self._pool = InternPool()

    def read_pod(self, body: PodBody) -> Pod:
        """The pod, init containers first, sidecars told by their restart policy."""
        meta, spec = body.metadata, body.spec
        early = [
            self._read_container(each, _early_role(each)) for each in spec.init_containers or ()
        ]
        main = [self._read_container(each, Role.MAIN) for each in spec.containers]
        containers = (*early, *main)
        return Pod(
            uid=meta.uid,
            namespace=self._text(meta.namespace),
            name=meta.name,
            containers=self._pool.intern(tuple(map(id, containers)), containers),
            labels=self._pick_shared(meta.labels, self._filter.labels),
            annotations=_pick(meta.annotations, self._filter.annotations),
            node=self._text(spec.node_name) if spec.node_name else None,
            phase=_PHASES.get(body.status.phase, Phase.UNKNOWN),
            deleting=meta.deletion_timestamp is not None,
            priority=spec.priority or 0,
            version=read_version(meta.resource_version),
        )

    def read_node_notice(self, body: NodeBody) -> NodeNotice:
        """What the node's agents published."""
        meta, status, keep = body.metadata, body.status, self._filter
        return NodeNotice(
            name=self._text(meta.name),
            labels=self._pick_shared(meta.labels, keep.labels),
            annotations=_pick(meta.annotations, keep.annotations),
            capacity=self._pick_shared(status.capacity, keep.amounts),
            allocatable=self._pick_shared(status.allocatable, keep.amounts),
            version=read_version(meta.resource_version),
            ready=is_ready(status),
            unschedulable=body.spec.unschedulable,
        )

    def _read_container(self, body: ContainerBody, role: Role) -> Container:
        given = body.resources or _NO_RESOURCES
        limits = self._pick_shared(given.limits, self._filter.amounts)
        requests = self._pick_shared(given.requests, self._filter.amounts)
        # Shared maps have one identity, and live as long as the containers that hold them.
        key = (body.name, role, id(limits), id(requests))
        return self._pool.intern(key, Container(body.name, limits, requests, role))

    def _pick_shared(
        self, given: Mapping[str, T] | None, prefixes: tuple[str, ...]
    ) -> Mapping[str, T]:
        picked = _pick(given, prefixes)
        if not picked:
            return picked
        return self._pool.intern(tuple(picked.items()), picked)

    def _text(self, text: str) -> str:
        return self._pool.intern(text, text)


def read_configmap(body: ConfigMapBody) -> ConfigMap:
    meta = body.metadata
    return ConfigMap(
        meta.namespace, meta.name, body.data or {}, read_version(meta.resource_version)
    )


def is_ready(status: NodeStatus) -> bool:
    """Whether the node's Ready condition is true; a node without one counts as ready."""
    found = (each.status for each in status.conditions or () if each.type == "Ready")
    return next(found, "True") == "True"


def read_version(text: str) -> int:
    """A resourceVersion as a number that grows; 0 where a server does not count in numbers."""
    return int(text) if text.isdecimal() else 0


_NO_RESOURCES: Final = ResourcesBody()


def _early_role(body: ContainerBody) -> Role:
    return Role.SIDECAR if body.restart_policy == "Always" else Role.INIT


def _pick(given: Mapping[str, T] | None, prefixes: tuple[str, ...]) -> Mapping[str, T]:
    if not given:
        return _EMPTY
    picked = {key: value for key, value in given.items() if key.startswith(prefixes)}
    return picked or _EMPTY
