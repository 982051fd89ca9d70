"""Every dialect that is known, and several of them as one.

A pod speaks one dialect; a node may be published by several, and the most exact is believed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from slicewise.dialects.catalog import DialectCatalog, QuotaLabels
from slicewise.dialects.elastic import ELASTIC
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.dialects.gpushare import GPUSHARE, build_gpushare
from slicewise.dialects.own import SLICEWISE
from slicewise.dialects.shared import limits
from slicewise.dialects.shared.dialect import Dialect
from slicewise.dialects.shared.inventory import cordon_gpus, read_counted
from slicewise.dialects.shared.isolation import (
    add_terms,
    read_pod_ceiling,
    read_pod_wish,
)
from slicewise.dialects.shared.publication import NodeFacts, Publication, join_publications
from slicewise.dialects.shared.records import RecordedPods
from slicewise.dialects.shared.started_gpus import STARTED_GPUS, StartedGpus, read_started_gpus
from slicewise.dialects.spelling import Spelling
from slicewise.dialects.tkestack import TKESTACK
from slicewise.model import (
    NO_RULES,
    UNLIMITED_USE,
    Allocation,
    ContainerRequest,
    DialectError,
    Host,
    IsolationRules,
    MiB,
    Node,
    NodeNotice,
    Pod,
    PodRecord,
    Request,
    SlicewiseError,
    model_matches,
)

P = ParamSpec("P")
R = TypeVar("R")


def contained(read: Callable[P, R]) -> Callable[P, R]:
    """A reader whose own mistakes make one pod or node unreadable, and nothing else."""

    @wraps(read)
    def read_contained(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except SlicewiseError:
            raise
        except Exception as error:
            words = f"cannot be read, by a mistake of ours: {type(error).__name__}: {error}"
            raise DialectError(words) from error

    return read_contained


class Dialects(DialectCatalog):
    """Several dialects as one; nodes are read by the first that finds GPUs."""

    def __init__(self, dialects: Sequence[Dialect], labels: QuotaLabels | None = None) -> None:
        super().__init__(dialects, labels or QuotaLabels())
        self._by_unit: dict[MiB, Dialects] = {}
        self._targets = tuple(key for each in dialects for key in each.pods.target_keys)
        known = tuple(key for each in dialects for key in each.node.pool_labels)
        pool = self.labels.pool
        self._pool_labels = known if pool is None else (pool,)
        self.spelling = Spelling(self.owners)
        """Finds which resource was meant by a name that none of them knows."""

    def with_labels(self, labels: QuotaLabels) -> "Dialects":
        """The same where nodes are labelled so; labels that name nothing change nothing."""
        return self if labels == QuotaLabels() else Dialects(self.dialects, labels)

    def count_in(self, unit: MiB | None) -> "Dialects":
        """The same where nodes that do not tell their unit of memory count in this one."""
        if unit is None:
            return self
        told = (_convert(each, unit, everywhere=True) for each in self.dialects)
        return Dialects(tuple(told), self.labels)

    def on(self, node: Node) -> "Dialects":
        """The same in the unit that this node counts memory in."""
        unit = node.memory_unit
        if unit is None:
            return self
        known = self._by_unit.get(unit)
        if known is None:
            known = Dialects(tuple(_convert(each, unit) for each in self.dialects), self.labels)
            self._by_unit[unit] = known
        return known

    def claim(self, pod: Pod) -> Dialect | None:
        """The dialect in which the pod asks for GPUs; None when it asks for none."""
        named = {
            self.owners[resource].name
            for container in pod.containers
            for amounts in (container.limits, container.requests)
            for resource in amounts
            if resource in self.owners
        }
        if not named:
            return None
        limits.check_containers(pod)
        claims = [
            (resource, dialect)
            for dialect in self.dialects
            if dialect.name in named and (resource := dialect.pods.claims(pod)) is not None
        ]
        limits.refuse_mixture([resource for resource, _ in claims])
        return claims[0][1] if claims else None

    @contained
    def read_request(self, pod: Pod) -> Request:
        """All that the pod asks for, CPU and main memory included."""
        dialect = self.claim(pod)
        if dialect is not None:
            limits.refuse_oversized(pod)
        request = Request() if dialect is None else dialect.pods.read_request(pod)
        lone = frozenset() if dialect is None else limits.find_lone(pod, dialect.pods.resources)
        request = replace(request, host=limits.read_pod_host(pod), lone=lone)
        if not request.containers:
            return request
        return replace(
            request,
            isolation=read_pod_wish(pod.annotations),
            ceiling=read_pod_ceiling(pod.annotations) or request.ceiling,
        )

    def add_terms(
        self,
        pod: Pod,
        request: Request,
        allocation: Allocation,
        node: Node,
        rules: IsolationRules = NO_RULES,
    ) -> Allocation:
        """The allocation with the isolation and the ceiling that its record promises."""
        dialect = self.claim(pod)
        if dialect is None:
            return allocation
        usual = dialect.agent.isolation
        if dialect.name in node.unlimited:
            usual = UNLIMITED_USE
        return add_terms(request, allocation, node, rules, usual)

    def read_floor(self, pod: Pod, node: Node) -> tuple[ContainerRequest, ...]:
        """What containers ask for there by limits that no annotation or label makes less."""
        try:
            bare = replace(pod, annotations={}, labels={})
            dialect = self.on(node).claim(bare)
            asked = () if dialect is None else dialect.pods.read_request(bare).containers
        except SlicewiseError:
            return ()
        if dialect is None or not dialect.pods.divisible:
            return asked
        fixed = dialect.pods.resources - dialect.pods.divisible
        named = {
            each.name
            for each in pod.containers
            if not fixed.isdisjoint((*each.limits, *each.requests))
        }
        return tuple(each for each in asked if each.name in named)

    def read_limits(self, pod: Pod, node: Node) -> tuple[limits.ContainerLimits, ...]:
        """What containers could receive there by their limits alone, under every name they use."""
        found = []
        for each in pod.containers:
            named = {*each.limits, *each.requests}
            # What the node only counts brings a container no GPU but by the carrier.
            idle = frozenset() if limits.CARRIER in named else node.counted
            if not self.owners.keys() & named - idle:
                continue
            systems = (dialect.pods.most_shares(each) for dialect in self.on(node).dialects)
            asked = tuple(shares for given in systems for shares in given)
            if asked:
                found.append(limits.ContainerLimits(each.name, each.role, asked))
        return tuple(found)

    def read_host(self, pod: Pod) -> Host:
        """CPU and main memory that the pod asks for."""
        return limits.read_pod_host(pod)

    @contained
    def read_allocation(
        self, pod: Pod, node: Node, request: Request | None = None
    ) -> Allocation | None:
        """What is recorded on the pod; None when nothing is, or it asks for no GPU."""
        dialect = self.on(node).claim(pod)
        if dialect is None:
            return None
        limits.refuse_oversized(pod)
        if request is None:
            request = dialect.pods.read_request(pod)
        return dialect.pods.read_allocation(pod, request.on(node), node)

    def records_nothing(self, pod: Pod) -> bool:
        """Whether the pod's system never tells which GPUs it has."""
        dialect = self.claim(pod)
        return dialect is not None and dialect.pods.records_nothing

    def known_policy(self, pod: Pod) -> str | None:
        """The policy by which users of the pod's system know it to be placed; None is any."""
        dialect = self.claim(pod)
        return None if dialect is None else dialect.scheduler.policy

    def is_adopted(self, pod: Pod, node: Node) -> bool:
        """Whether GPUs are ours to choose for a pod that others bound to this node."""
        dialect = self.claim(pod)
        return dialect is not None and dialect.pods.adopted_on(pod, node)

    def read_target(self, pod: Pod) -> str | None:
        """The node that a record names before the pod is bound, as gpu-admission's do."""
        return _first_value(pod.annotations, self._targets)

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """How the allocation is recorded; nothing for a pod that asks for no GPU."""
        dialect = self.on(node).claim(pod)
        if dialect is None:
            return PodRecord()
        asked = request.on(node)
        return dialect.pods.record_allocation(pod, asked, allocation, node, now_ns=now_ns)

    def write_marks(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """What the pod's own system reads of the allocation, for who signs a full record beside it.

        Nothing for a pod that asks for no GPU.
        """
        dialect = self.on(node).claim(pod)
        if dialect is None:
            return PodRecord()
        asked = request.on(node)
        if isinstance(dialect.pods, RecordedPods):
            return dialect.pods.write_own(pod, asked, allocation, node, now_ns)
        return dialect.pods.record_allocation(pod, asked, allocation, node, now_ns=now_ns)

    @contained
    def read_node(self, notice: NodeNotice) -> Node:
        """The node with its GPUs, its pool, and its CPU and main memory."""
        published = (dialect.node.read_node(notice) for dialect in self.dialects)
        node = next((found for found in published if found is not None), Node(notice.name))
        node = _name_models(node, notice.labels.get(self.labels.model or "", ""))
        return replace(
            cordon_gpus(node, notice),
            host=limits.read_node_host(notice),
            pool=_first_value(notice.labels, self._pool_labels),
            counted=read_counted(notice),
            unlimited=self._read_unlimited(notice),
            memory_unit=self._read_unit(notice, node),
            started=_read_started(notice),
        )

    def _read_unlimited(self, notice: NodeNotice) -> frozenset[str]:
        labels = ((each.name, each.node.unlimited_label) for each in self.dialects)
        return frozenset(
            name
            for name, label in labels
            if label is not None and notice.labels.get(label[0]) == label[1]
        )

    def _read_unit(self, notice: NodeNotice, node: Node) -> MiB | None:
        units = (dialect.node.read_unit(notice, node) for dialect in self.dialects)
        return next((unit for unit in units if unit is not None), None)

    def publish(self, facts: NodeFacts, editions: Iterable[str]) -> Publication:
        """What an agent that offers these editions publishes on its Node."""
        offered = frozenset(editions)
        return join_publications([each.node.publish(facts, offered) for each in self.dialects])


def _first_value(given: Mapping[str, str], keys: Iterable[str]) -> str | None:
    return next((given[key] for key in keys if given.get(key)), None)


def _name_models(node: Node, label: str) -> Node:
    """The node with its label's words in the models of its GPUs, so that a quota finds them."""
    if not label or all(model_matches(gpu.model, label) for gpu in node.gpus):
        return node
    gpus = (replace(gpu, model=f"{gpu.model} {label}".strip()) for gpu in node.gpus)
    return replace(node, gpus=tuple(gpus))


def _read_started(notice: NodeNotice) -> StartedGpus:
    text = notice.annotations.get(STARTED_GPUS)
    try:
        return {} if text is None else read_started_gpus(text)
    except DialectError:
        # It narrows what is charged; without it nothing is known.
        return {}


def _convert(dialect: Dialect, unit: MiB, *, everywhere: bool = False) -> Dialect:
    return dialect if dialect.in_unit is None else dialect.in_unit(unit, everywhere)


# In the order in which a node's inventories are believed. A new dialect is one line here.
DEFAULT: Final = Dialects((SLICEWISE, TKESTACK, GPUSHARE, ELASTIC, GPUSCHEDULER))


def build_dialects(gpushare_unit: MiB) -> Dialects:
    """The same where a unit of gpushare's memory is of this size."""
    gpushare = build_gpushare(gpushare_unit)
    return Dialects(tuple(gpushare if each is GPUSHARE else each for each in DEFAULT.dialects))
