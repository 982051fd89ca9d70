"""Which resources the node offers as devices, and which as plain amounts on the Node.

The kubelet takes no message over 4 MiB. A resource that would not fit stands on the Node as a
plain amount, if containers receive their GPUs through another resource; if they do not, it is
not offered at all. So does one of so many units that a kubelet would choke on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import structlog

from slicewise.dialects import COUNTED
from slicewise.dialects.shared.offers import (
    OfferedEdition,
    OfferedResource,
    count_lengths,
    name_units,
)
from slicewise.kubelet.v1beta1 import MESSAGE_LIMIT, Unit, measure_units
from slicewise.model import Gpu, Node

_log = structlog.get_logger(__name__)
# A kubelet that starts searches, for each device, all devices that pods hold, and admits no pod
# meanwhile: minutes for 200,000 devices, measured by tests/e2e/test_agent_restart.py.
MOST_UNITS: Final = 16384


class OfferKind(Enum):
    """How a resource is offered."""

    DEVICES = "devices"
    AMOUNT = COUNTED
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OfferPlan:
    """How each resource is offered on this node."""

    ways: Mapping[str, OfferKind] = field(default_factory=dict)
    devices: tuple[tuple[OfferedEdition, OfferedResource], ...] = ()
    amounts: tuple[tuple[OfferedEdition, OfferedResource], ...] = ()
    editions: tuple[OfferedEdition, ...] = ()

    def extended(self, node: Node) -> dict[str, int]:
        """The amounts that stand on the Node, by the healthy GPUs."""
        usable = _usable(node)
        amounts = {
            resource.name: sum(map(resource.per_gpu, usable)) for _, resource in self.amounts
        }
        for edition in self.editions:
            for name, per_gpu in edition.counts:
                amounts[name] = sum(map(per_gpu, _countable(node)))
        return amounts


def plan_offers(
    editions: Sequence[OfferedEdition],
    node: Node,
    limit: int = MESSAGE_LIMIT,
    *,
    most_units: int = MOST_UNITS,
) -> OfferPlan:
    """How each resource of these editions is offered on a node with these GPUs."""
    ways: dict[str, OfferKind] = {}
    devices, amounts = [], []
    for edition in editions:
        for resource in edition.resources:
            size = measure_units(count_lengths(resource, _countable(node)))
            way = _choose(edition, resource, fits=size <= limit)
            units = sum(map(resource.per_gpu, _countable(node)))
            if units > most_units and edition.has_other_carrier(resource.name):
                way = OfferKind.AMOUNT
            ways[resource.name] = way
            if way is OfferKind.DEVICES:
                devices.append((edition, resource))
                continue
            if way is OfferKind.AMOUNT:
                amounts.append((edition, resource))
            tell = _log.error if way is OfferKind.REFUSED else _log.warning
            tell(
                "resource too large for the kubelet",
                resource=resource.name,
                units=units,
                bytes=size,
                limit=limit,
                way=way.value,
            )
    return OfferPlan(ways, tuple(devices), tuple(amounts), tuple(editions))


def list_units(
    resource: OfferedResource, node: Node, sick: frozenset[str] | None = None
) -> Iterator[Unit]:
    """Every unit of the resource; healthy as its GPU is, unless `sick` says otherwise."""
    for name, gpu in name_units(resource, _countable(node)):
        yield Unit(name, gpu.healthy if sick is None else name not in sick)


def _choose(edition: OfferedEdition, resource: OfferedResource, *, fits: bool) -> OfferKind:
    if fits:
        return OfferKind.DEVICES
    return OfferKind.AMOUNT if edition.has_other_carrier(resource.name) else OfferKind.REFUSED


def _countable(node: Node) -> list[Gpu]:
    # GPUs in MIG mode are left to others.
    return [gpu for gpu in node.gpus if not gpu.mig]


def _usable(node: Node) -> list[Gpu]:
    return [gpu for gpu in node.gpus if gpu.usable]
