"""What several dialects name together: keys, resources, editions, routes and configurations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slicewise.dialects.shared import limits
from slicewise.dialects.shared.dialect import Dialect
from slicewise.dialects.shared.isolation import CEILING, ISOLATION
from slicewise.dialects.shared.offers import OfferedEdition
from slicewise.dialects.shared.records import ALLOCATION
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.model import FULL, DialectError, Gpu, MiB

# Of which a resource may have too many units for a kubelet.
_LARGE_GPU: Final = Gpu(0, "", "", MiB(81920), minor=0)


@dataclass(frozen=True, slots=True)
class QuotaLabels:
    """The labels of nodes by which a cluster's own quota names models and pools."""

    model: str | None = None
    """The label of the model, beside what the node reports of its GPUs."""
    pool: str | None = None
    """The label of the pool, in place of those that the systems know."""


class DialectCatalog:
    """The names of several dialects; each resource and each route has one meaning."""

    def __init__(self, dialects: Sequence[Dialect], labels: QuotaLabels) -> None:
        self.dialects = dialects
        self.labels = labels
        self.owners = _find_owners(dialects)
        """The dialect of each resource."""
        self.routes = _join_routes(dialects)
        """The paths that schedulers post to; systems may share one that means the same."""

    @property
    def resources(self) -> frozenset[str]:
        """Every resource name that any of the dialects owns."""
        return frozenset(self.owners)

    @property
    def keys(self) -> tuple[str, ...]:
        """How every key begins that is read, so that edges can leave the others out."""
        own = (key for key in (self.labels.model, self.labels.pool) if key is not None)
        return tuple(dict.fromkeys((*own, *(key for each in self.dialects for key in each.keys))))

    @property
    def amounts(self) -> tuple[str, ...]:
        """How every resource begins whose amounts are read."""
        return (*self.keys, "cpu", "memory")

    @property
    def marks(self) -> tuple[str, ...]:
        """Every annotation and label of pods that a system writes, `*` for whatever follows."""
        found = (key for each in self.dialects for key in each.pods.marks)
        return tuple(sorted(dict.fromkeys((ALLOCATION, SIGNATURE, *found))))

    @property
    def amount_rules(self) -> tuple[limits.AmountRule, ...]:
        """Which amounts can be served, of every resource that has a rule."""
        found = (rule for each in self.dialects for rule in each.pods.amount_rules)
        return tuple(sorted(found, key=lambda rule: rule.resource))

    @property
    def pod_keys(self) -> frozenset[str]:
        """Every annotation and label of pods that is read."""
        own = (ALLOCATION, SIGNATURE, ISOLATION, CEILING)
        return frozenset((*own, *(key for each in self.dialects for key in each.pods.keys)))

    @property
    def pod_key_prefixes(self) -> tuple[str, ...]:
        """How those begin that are named after containers."""
        return tuple(key for each in self.dialects for key in each.pods.key_prefixes)

    @property
    def pod_amounts(self) -> frozenset[str]:
        """Every resource of pods that is read."""
        return frozenset((*self.owners, limits.CARRIER, "cpu", "memory"))

    @property
    def countable(self) -> frozenset[str]:
        """The resources that bring GPUs, and that a node with many units of them only counts."""
        editions = (edition for each in self.dialects for edition in each.agent.editions)
        return frozenset(
            each.name
            for edition in editions
            for each in edition.resources[1:]
            if each.carries and each.per_gpu(_LARGE_GPU) > FULL
        )

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
        """The editions of these names; raises DialectError for one that is not known."""
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
