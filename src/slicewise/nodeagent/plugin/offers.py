"""Which resources the node offers as devices, and which as plain amounts on the Node.

The kubelet takes no message over 4 MiB. A resource that would not fit stands on the Node as a
plain amount, if containers receive their GPUs through another resource; if they do not, it is
not offered at all. So does one of so many units that a kubelet would choke on them. A container
that asks for such an amount alone receives its GPUs through the carrier, if it names that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import structlog

from slicewise.dialects import COUNTED
from slicewise.dialects.shared.limits import CARRIER
from slicewise.dialects.shared.offers import (
    OfferedEdition,
    OfferedResource,
    carry,
    count_lengths,
    name_units,
)
from slicewise.kube.events import EventRecorder
from slicewise.kube.outcomes import PodEvent
from slicewise.kubelet.v1beta1 import MESSAGE_LIMIT, Unit, measure_units
from slicewise.model import Gpu, Node, Pod, QuantityError

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
        usable = [gpu for gpu in node.gpus if gpu.usable]
        amounts = {each.name: sum(map(each.per_gpu, usable)) for _, each in self.amounts}
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
            way = _choose_way(edition, resource, node, limit, most_units)
            ways[resource.name] = way
            if way is OfferKind.DEVICES:
                devices.append((edition, resource))
            elif way is OfferKind.AMOUNT:
                amounts.append((edition, resource))
    if any(sum(each.carries for each in one.resources) > 1 for one in editions):
        carrier = carry(resource for _, resource in devices)
        ways[CARRIER] = OfferKind.DEVICES
        devices.append((carrier, carrier.resources[-1]))
    return OfferPlan(ways, tuple(devices), tuple(amounts), tuple(editions))


def _choose_way(
    edition: OfferedEdition, resource: OfferedResource, node: Node, limit: int, most_units: int
) -> OfferKind:
    """How one resource is offered, said in the log where it is not by devices."""
    size = measure_units(count_lengths(resource, _countable(node)))
    units = sum(map(resource.per_gpu, _countable(node)))
    others = edition.has_other_carrier(resource.name)
    if size <= limit and not (others and units > most_units):
        return OfferKind.DEVICES
    way = OfferKind.AMOUNT if others else OfferKind.REFUSED
    tell = _log.warning if others else _log.error
    if size > limit:
        what, facts = "list too long for the kubelet", {"bytes": size, "most_bytes": limit}
    else:
        what, facts = "too many units for a kubelet", {"units": units, "most_units": most_units}
    tell(what, resource=resource.name, **facts, way=way.value)
    return way


def list_units(resource: OfferedResource, node: Node) -> Iterator[Unit]:
    """Every unit of the resource; healthy as its GPU is."""
    for name, gpu in name_units(resource, _countable(node)):
        yield Unit(name, gpu.healthy)


def _countable(node: Node) -> list[Gpu]:
    # GPUs in MIG mode are left to others.
    return [gpu for gpu in node.gpus if not gpu.mig]


class UnservedPodWarnings:
    """Warns once for every pod of which a container gets no GPU, its resource being an amount.

    It runs without one. Nothing can hold it back, so it is said where people look.
    """

    def __init__(self, plan: OfferPlan, events: EventRecorder) -> None:
        self._plan = plan
        self._events = events
        self._said: set[str] = set()

    def look(self, pod: Pod) -> None:
        """Warn about this pod once, if one of its containers gets no GPU."""
        if pod.uid in self._said:
            return
        for container, resource in find_unserved(pod, self._plan):
            self._said.add(pod.uid)
            note = (
                f"container {container} asks for {resource} alone, which brings no GPU on this "
                f"node; ask for {CARRIER}: 1 or for cores beside it"
            )
            _log.error("container without a GPU", pod=f"{pod.namespace}/{pod.name}", reason=note)
            event = PodEvent(reason="GpuNotGiven", note=note, action="Starting", warning=True)
            self._events.post(pod, event)

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self._said = {uid for uid in self._said if living(uid)}


def find_unserved(pod: Pod, plan: OfferPlan) -> Iterator[tuple[str, str]]:
    """The containers whose GPUs would come through a resource that is a plain amount here."""
    amounts = {resource.name for _, resource in plan.amounts}
    for edition in plan.editions if amounts else ():
        for container in pod.containers:
            try:
                carrier = edition.carrier(container)
            except QuantityError:
                continue
            if carrier in amounts and CARRIER not in (*container.limits, *container.requests):
                yield container.name, carrier
