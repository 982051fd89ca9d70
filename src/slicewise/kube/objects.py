"""What we read of Kubernetes objects: structs that name only the fields used, and model values.

Equal containers, label sets and names are interned, for a cluster repeats them thousands of
times. Of labels, annotations and amounts only those are kept that some reader needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from slicewise.model import Container, NodeNotice, Phase, Pod, Role
from slicewise.model.bounds import MAX_ANNOTATION_BYTES, MAX_POD_BYTES, MAX_QUANTITY_LETTERS
from slicewise.model.intern_pool import InternPool

T = TypeVar("T")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
# A pod just created has no phase yet.
_PHASES: Final = {"": Phase.PENDING} | {phase.value: phase for phase in Phase}
_SHOWN_OVERSIZED: Final = 1
_MOST_DOUBTFUL: Final = 2
_KEPT_OF_OVERSIZED: Final = 1024
# Versions are 64-bit numbers.
_VERSION_DIGITS: Final = 20
# The longest that a time is written, and of how many the seconds are known: those of one pod's
# life are read several times, and pods that are created together share theirs.
_TIME_LETTERS: Final = 40
_TIMES: Final = 4096
# Containers that name more amounts than this are not known by their words.
_MOST_AMOUNTS: Final = 16


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


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
    preemption_policy: str | None = None


class RequestMapping(msgspec.Struct, rename="camel", gc=False):
    """Which request of a claim serves what a container asks for by name."""

    container_name: str = ""
    request_name: str = ""
    resource_name: str = ""


class ClaimStatusBody(msgspec.Struct, rename="camel", gc=False):
    """Which claim stands behind a name of the pod's own; none where none was needed."""

    name: str = ""
    resource_claim_name: str | None = None
    request_mappings: list[RequestMapping] | None = None


class PodStatus(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    resource_claim_statuses: list[ClaimStatusBody] | None = None
    extended_resource_claim_status: ClaimStatusBody | None = None


class PodBody(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    kind: str = ""


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
    kind: str = ""


class ConfigMapBody(msgspec.Struct, gc=False):
    metadata: Metadata
    data: dict[str, str] | None = None
    kind: str = ""


class ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}, gc=False):
    """The metadata of a list: its version and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListBody(msgspec.Struct, Generic[T]):
    metadata: ListMetadata
    items: list[T] | None


class WatchLine(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch, and its object."""

    type: str
    object: T


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
    """An object of which only kind and metadata matter."""

    metadata: Metadata
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ConfigMap:
    namespace: str
    name: str
    data: Mapping[str, str]
    version: int = 0


@dataclass(frozen=True, slots=True)
class PodKeys:
    """Which keys of pods are kept: tenants may write as many others as they like."""

    exact: frozenset[str]
    """Annotations and labels."""
    prefixes: tuple[str, ...]
    """How annotations begin that are named after containers."""
    labels: tuple[str, ...]
    """How further labels begin."""
    amounts: frozenset[str]
    """Resources."""
    doubtful: Callable[[str], bool] = lambda _: False
    """Whether a resource may be one of these misspelt, and is kept for whoever says so."""


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys of an object are kept, by prefix; of pods only those that `pods` names."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ("cpu", "memory")
    pods: PodKeys | None = None
    gpus: frozenset[str] = frozenset()
    """Resources by which pods ask for GPUs; where none is named, a claim may serve any of them."""


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
        annotations = self._pick_texts(meta.annotations, self._filter.annotations)
        labels = self._pick_texts(meta.labels, self._filter.labels)
        oversized: tuple[tuple[str, int], ...] = ()
        if self._filter.pods is not None:
            annotations, labels, oversized = _fit(annotations, labels)
        return Pod(
            uid=meta.uid,
            namespace=self._text(meta.namespace),
            name=meta.name,
            containers=self._pool.intern(tuple(map(id, containers)), containers),
            labels=self._share(labels),
            annotations=annotations,
            node=self._text(spec.node_name) if spec.node_name else None,
            phase=_PHASES.get(body.status.phase, Phase.UNKNOWN),
            deleting=meta.deletion_timestamp is not None,
            priority=spec.priority or 0,
            version=read_version(meta.resource_version),
            created=read_time(meta.creation_timestamp),
            oversized=oversized,
            ends=read_time(meta.deletion_timestamp),
            preempts=spec.preemption_policy != "Never",
            by_claim=self._is_by_claim(body.status.extended_resource_claim_status, containers),
        )

    def _is_by_claim(self, claim: ClaimStatusBody | None, containers: Sequence[Container]) -> bool:
        """Whether a claim serves every GPU that the pod asks for by name, and not other devices."""
        if claim is None or not self._filter.gpus:
            return claim is not None
        named = {name for each in containers for name in (*each.limits, *each.requests)}
        asked = named & self._filter.gpus
        return bool(asked) and asked <= {
            each.resource_name for each in claim.request_mappings or ()
        }

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
        asked = (*(given.limits or _EMPTY).items(), None, *(given.requests or _EMPTY).items())
        if len(asked) > _MOST_AMOUNTS:
            return self._build_container(body, given, role)
        known = (body.name, role, asked)
        container: Container | None = self._pool.find(known)
        if container is None:
            container = self._pool.intern(known, self._build_container(body, given, role))
        return container

    def _build_container(self, body: ContainerBody, given: ResourcesBody, role: Role) -> Container:
        limits = self._share(self._pick_amounts(given.limits))
        requests = self._share(self._pick_amounts(given.requests))
        # Shared maps have one identity, and live as long as the containers that hold them.
        key = (body.name, role, id(limits), id(requests))
        return self._pool.intern(key, Container(body.name, limits, requests, role))

    def _pick_shared(
        self, given: Mapping[str, T] | None, prefixes: tuple[str, ...]
    ) -> Mapping[str, T]:
        return self._share(_pick(given, prefixes))

    def _share(self, picked: Mapping[str, T]) -> Mapping[str, T]:
        return self._pool.intern(tuple(picked.items()), picked) if picked else picked

    def _pick_texts(
        self, given: Mapping[str, str] | None, prefixes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The annotations or labels of a pod that somebody reads."""
        pods = self._filter.pods
        if pods is None or not given:
            return _pick(given, prefixes)
        begins = pods.prefixes if prefixes is self._filter.annotations else pods.labels
        picked = {k: v for k, v in given.items() if k in pods.exact or k.startswith(begins)}
        return picked or _EMPTY

    def _pick_amounts(self, given: Mapping[str, str | int] | None) -> Mapping[str, str | int]:
        """The amounts that somebody reads; one that is too long is no number any more."""
        pods = self._filter.pods
        if pods is None or not given:
            return _pick(given, self._filter.amounts)
        picked = {key: value for key, value in given.items() if key in pods.amounts}
        if len(picked) < len(given):
            others = (key for key in given if key not in picked and pods.doubtful(key))
            picked |= {key: given[key] for key in islice(others, _MOST_DOUBTFUL)}
        for key, value in picked.items():
            if isinstance(value, str) and len(value) > MAX_QUANTITY_LETTERS:
                picked[key] = f"{value[:MAX_QUANTITY_LETTERS]}..."
        return picked or _EMPTY

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
    return int(text) if text.isdecimal() and len(text) <= _VERSION_DIGITS else 0


def read_time(text: str | None) -> int:
    """A time of the API server as whole seconds since 1970; 0 where there is none."""
    return 0 if text is None or len(text) > _TIME_LETTERS else _read_time(text)


@lru_cache(maxsize=_TIMES)
def _read_time(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0


_NO_RESOURCES: Final = ResourcesBody()


def _fit(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str], tuple[tuple[str, int], ...]]:
    """What of a pod's texts may be kept, and the keys and bytes of what is too long for that."""
    letters = sum(len(k) + len(v) for each in (annotations, labels) for k, v in each.items())
    # A letter has four bytes at most.
    if 4 * letters <= MAX_ANNOTATION_BYTES:
        return annotations, labels, ()
    sizes = sorted(
        (len(value.encode("utf-8", "replace")) + len(key), at, key)
        for at, each in enumerate((annotations, labels))
        for key, value in each.items()
    )
    if sizes[-1][0] <= MAX_ANNOTATION_BYTES and sum(size for size, *_ in sizes) <= MAX_POD_BYTES:
        return annotations, labels, ()
    # It cannot be read in any case: what is short stays, which records are.
    kept: tuple[dict[str, str], dict[str, str]] = ({}, {})
    total, oversized = 0, []
    for size, at, key in sizes:
        total += size
        if total <= _KEPT_OF_OVERSIZED:
            kept[at][key] = (annotations, labels)[at][key]
        else:
            oversized.append((f"{('annotation', 'label')[at]} {key}", size))
    return kept[0] or _EMPTY, kept[1] or _EMPTY, tuple(oversized[-_SHOWN_OVERSIZED:])


def _early_role(body: ContainerBody) -> Role:
    return Role.SIDECAR if body.restart_policy == "Always" else Role.INIT


def _pick(given: Mapping[str, T] | None, prefixes: tuple[str, ...]) -> Mapping[str, T]:
    if not given:
        return _EMPTY
    picked = {key: value for key, value in given.items() if key.startswith(prefixes)}
    return picked or _EMPTY
