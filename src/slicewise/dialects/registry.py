"""Every dialect that is known, and several of them as one.

A pod speaks one dialect; a node may be published by several, and the most exact is believed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from slicewise.dialects.elastic import ELASTIC
from slicewise.dialects.gpuscheduler import GPUSCHEDULER
from slicewise.dialects.gpushare import GPUSHARE, build_gpushare
from slicewise.dialects.own import SLICEWISE
from slicewise.dialects.shared import limits
from slicewise.dialects.shared.dialect import Dialect
from slicewise.dialects.shared.inventory import cordon_gpus, read_counted
from slicewise.dialects.shared.offers import OfferedEdition
from slicewise.dialects.shared.publication import NodeFacts, Publication, join_publications
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute
from slicewise.dialects.tkestack import TKESTACK
from slicewise.model import Allocation, DialectError, MiB, Node, NodeNotice, Pod, PodRecord, Request


class Dialects:
    """Several dialects as one; nodes are read by the first that finds GPUs."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = dialects
        self._owners = _find_owners(dialects)
        self._targets = tuple(key for each in dialects for key in each.pods.target_keys)
        self._pool_labels = tuple(key for each in dialects for key in each.node.pool_labels)
        self.routes = _join_routes(dialects)
        """The paths that schedulers post to; systems may share one that means the same."""

    @property
    def resources(self) -> frozenset[str]:
        """Every resource name that any of the dialects owns."""
        return frozenset(self._owners)

    @property
    def keys(self) -> tuple[str, ...]:
        """How every key begins that is read, so that edges can leave the others out."""
        return tuple(dict.fromkeys(key for each in self.dialects for key in each.keys))

    @property
    def amounts(self) -> tuple[str, ...]:
        """How every resource begins whose amounts are read."""
        return (*self.keys, "cpu", "memory")

    def claim(self, pod: Pod) -> Dialect | None:
        """The dialect in which the pod asks for GPUs; None when it asks for none."""
        limits.check_containers(pod)
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
            if dialect.name in named and (resource := dialect.pods.claims(pod)) is not None
        ]
        limits.refuse_mixture([resource for resource, _ in claims])
        return claims[0][1] if claims else None

    def read_request(self, pod: Pod) -> Request:
        """All that the pod asks for, CPU and main memory included."""
        dialect = self.claim(pod)
        request = Request() if dialect is None else dialect.pods.read_request(pod)
        lone = frozenset() if dialect is None else limits.find_lone(pod, dialect.pods.resources)
        return replace(request, host=limits.read_pod_host(pod), lone=lone)

    def read_allocation(
        self, pod: Pod, node: Node, request: Request | None = None
    ) -> Allocation | None:
        """What is recorded on the pod; None when nothing is, or it asks for no GPU."""
        dialect = self.claim(pod)
        if dialect is None:
            return None
        if request is None:
            request = dialect.pods.read_request(pod)
        return dialect.pods.read_allocation(pod, request, node)

    def records_nothing(self, pod: Pod) -> bool:
        """Whether the pod's system never tells which GPUs it has."""
        dialect = self.claim(pod)
        return dialect is not None and dialect.pods.records_nothing

    def read_target(self, pod: Pod) -> str | None:
        """The node that a record names before the pod is bound, as gpu-admission's do."""
        return _first_value(pod.annotations, self._targets)

    def record_allocation(
        self, pod: Pod, request: Request, allocation: Allocation, node: Node, *, now_ns: int
    ) -> PodRecord:
        """How the allocation is recorded; nothing for a pod that asks for no GPU."""
        dialect = self.claim(pod)
        if dialect is None:
            return PodRecord()
        return dialect.pods.record_allocation(pod, request, allocation, node, now_ns=now_ns)

    def read_node(self, notice: NodeNotice) -> Node:
        """The node with its GPUs, its pool, and its CPU and main memory."""
        published = (dialect.node.read_node(notice) for dialect in self.dialects)
        node = next((found for found in published if found is not None), Node(notice.name))
        return replace(
            cordon_gpus(node, notice),
            host=limits.read_node_host(notice),
            pool=_first_value(notice.labels, self._pool_labels),
            counted=read_counted(notice),
        )

    def publish(self, facts: NodeFacts, editions: Iterable[str]) -> Publication:
        """What an agent that offers these editions publishes on its Node."""
        offered = frozenset(editions)
        return join_publications([each.node.publish(facts, offered) for each in self.dialects])

    @property
    def heartbeats(self) -> tuple[str, ...]:
        """The annotations in which agents say that they live."""
        found = (each.node.heartbeat for each in self.dialects)
        return tuple(key for key in found if key is not None)

    @property
    def editions(self) -> Mapping[str, OfferedEdition]:
        """Everything that an agent can offer, by name."""
        return {edition.name: edition for each in self.dialects for edition in each.agent.editions}

    def find_editions(self, names: Iterable[str]) -> tuple[OfferedEdition, ...]:
        known = self.editions
        chosen = []
        for name in dict.fromkeys(names):
            if name not in known:
                raise DialectError(f"dialect {name!r}: expected {', '.join(known)}")
            chosen.append(known[name])
        return tuple(chosen)

    @property
    def default_editions(self) -> tuple[str, ...]:
        """The editions that an agent offers which is told nothing."""
        return tuple(name for name, edition in self.editions.items() if edition.by_default)

    @property
    def views(self) -> tuple[SnapshotRoute, ...]:
        """The paths at which tools look at the cluster."""
        return tuple(view for each in self.dialects for view in each.scheduler.views)

    @property
    def uncounted(self) -> frozenset[str]:
        """The resources that schedulers themselves do not count."""
        configs = self.extender_configs.values()
        return frozenset(name for each in configs if each.ignored for name in each.resources)

    @property
    def extender_configs(self) -> Mapping[str, ExtenderConfig]:
        """How schedulers are configured, by name."""
        return {config.name: config for each in self.dialects for config in each.scheduler.configs}


def _first_value(given: Mapping[str, str], keys: Iterable[str]) -> str | None:
    return next((given[key] for key in keys if given.get(key)), None)


def _find_owners(dialects: Sequence[Dialect]) -> dict[str, Dialect]:
    owners: dict[str, Dialect] = {}
    for dialect in dialects:
        for resource in sorted(dialect.pods.resources):
            owner = owners.setdefault(resource, dialect)
            if owner is not dialect:
                raise DialectError(
                    f"{resource} is owned by {owner.name} and {dialect.name}: expected one"
                )
    return owners


def _join_routes(dialects: Sequence[Dialect]) -> dict[str, ExtenderRoute]:
    found: dict[str, ExtenderRoute] = {}
    for dialect in dialects:
        for route in dialect.scheduler.routes:
            if found.setdefault(route.path, route) != route:
                raise DialectError(f"dialect {dialect.name}: {route.path} is another's route")
    return found


# In the order in which a node's inventories are believed. A new dialect is one line here.
DEFAULT: Final = Dialects((SLICEWISE, TKESTACK, GPUSHARE, ELASTIC, GPUSCHEDULER))


def build_dialects(gpushare_unit: MiB) -> Dialects:
    """The same where a unit of gpushare's memory is of this size."""
    gpushare = build_gpushare(gpushare_unit)
    return Dialects(tuple(gpushare if each is GPUSHARE else each for each in DEFAULT.dialects))
