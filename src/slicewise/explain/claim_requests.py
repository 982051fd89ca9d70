"""What the claims of one pod ask of the engine, or what of them the engine does not do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from slicewise.explain.device_selectors import UnknownNameError, find_fault, matches
from slicewise.model import FULL, MiB, SlicewiseError
from slicewise.model.claim import (
    CAPACITIES,
    DRIVER,
    ENGINE_TAINT,
    Claim,
    ClaimConstraint,
    ClaimRequest,
    DeviceClass,
    OfferedDevice,
)
from slicewise.placement.claim_placement import ConstraintKind, DeviceConstraint, DeviceWish

# Of the GPUs of one node, each has another value of these.
_IDENTITIES: Final = frozenset(
    (f"{DRIVER}/uuid", f"{DRIVER}/index", f"{DRIVER}/minor", "resource.kubernetes.io/pciBusID")
)
_MOST_SELECTORS: Final = 1024


class ClaimObstacleError(SlicewiseError):
    """The engine does not allocate such a claim, and says why."""


class OfferedGpus:
    """The devices that the engine allocates, and which of them selectors admit."""

    def __init__(self, judge: Callable[[str, OfferedDevice], bool | None] = matches) -> None:
        self._judge = judge
        self._slices: dict[str, tuple[OfferedDevice, ...]] = {}
        self._admitted: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}
        self._unions: dict[object, frozenset[str] | None] = {}
        self._nodes: frozenset[str] | None = None
        self.version = 0
        """Grows whenever other devices are offered, or offered otherwise."""

    def put(self, name: str, devices: Sequence[OfferedDevice]) -> None:
        """Take over a slice as it is now; devices that schedulers allocate are left out."""
        ours = tuple(each for each in devices if ENGINE_TAINT in each.taints and each.uuid)
        before = self._slices.get(name, ())
        if ours == before:
            return
        self.version += 1
        if [_describe(each) for each in ours] != [_describe(each) for each in before]:
            for known in self._admitted.values():
                known.pop(name, None)
            self._unions.clear()
            self._nodes = None
        if ours:
            self._slices[name] = ours
        else:
            self._slices.pop(name, None)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes with such devices."""
        if self._nodes is None:
            listed = self._slices.values()
            self._nodes = frozenset(each.node for devices in listed for each in devices[:1])
        return self._nodes

    def drop(self, name: str) -> None:
        """The slice is gone."""
        self.put(name, ())

    def __iter__(self) -> Iterator[OfferedDevice]:
        return (each for devices in self._slices.values() for each in devices)

    def admit(self, selectors: tuple[str, ...]) -> frozenset[str] | None:
        """The UUIDs of the GPUs that all selectors admit; None is all of them."""
        if selectors not in self._unions:
            if len(self._admitted) > _MOST_SELECTORS:
                self._admitted.clear()
                self._unions.clear()
            known = self._admitted.setdefault(selectors, {})
            for name, devices in self._slices.items():
                if name not in known:
                    known[name] = frozenset(
                        each.uuid for each in devices if self._admits(selectors, each)
                    )
            found = frozenset().union(*(known[name] for name in self._slices))
            every = sum(map(len, self._slices.values()))
            self._unions[selectors] = None if len(found) == every else found
        return self._unions[selectors]

    def group(self, attribute: str) -> tuple[frozenset[str], ...]:
        """The UUIDs of the GPUs by each value of an attribute; those without it are in none."""
        name = attribute.removeprefix(f"{DRIVER}/")
        groups: dict[object, set[str]] = {}
        for each in self:
            if name in each.attributes:
                groups.setdefault(each.attributes[name], set()).add(each.uuid)
        return tuple(frozenset(found) for _, found in sorted(groups.items(), key=str))

    def _admits(self, selectors: tuple[str, ...], device: OfferedDevice) -> bool:
        for each in selectors:
            try:
                admitted = self._judge(each, device)
            except UnknownNameError as error:
                raise ClaimObstacleError(f"selector {each}: {error}") from error
            if admitted is None:
                fault = find_fault(each, device)
                raise ClaimObstacleError(f"selector {each} was not evaluated: {fault}")
            if not admitted:
                return False
        return True


def read_wishes(
    claims: Sequence[Claim], gpus: OfferedGpus, classes: Mapping[str, DeviceClass]
) -> tuple[tuple[DeviceWish, ...], tuple[DeviceConstraint, ...]]:
    """What the claims ask for; raises where the engine does not allocate one of them."""
    wishes: list[DeviceWish] = []
    constraints: list[DeviceConstraint] = []
    for claim in claims:
        assert claim.spec is not None
        if claim.spec.obstacle:
            raise ClaimObstacleError(claim.spec.obstacle)
        places: dict[str, int] = {}
        for request in claim.spec.requests:
            places[request.name] = len(wishes)
            wishes.append(_read_wish(claim, request, gpus, classes))
        for each in claim.spec.constraints:
            members = tuple(places[name] for name in each.requests or places if name in places)
            constraints.append(_read_constraint(each, members, wishes, gpus))
    return tuple(wishes), tuple(constraints)


def _read_wish(
    claim: Claim, request: ClaimRequest, gpus: OfferedGpus, classes: Mapping[str, DeviceClass]
) -> DeviceWish:
    found = classes.get(request.device_class)
    where = f"request {request.name}"
    if found is None:
        raise ClaimObstacleError(f"{where}: there is no device class {request.device_class!r}")
    if found.configured:
        raise ClaimObstacleError(f"{where}: its class has parameters for drivers")
    if request.strange:
        known = " and ".join(CAPACITIES)
        raise ClaimObstacleError(f"{where}: capacity {request.strange[0]}: GPUs have {known}")
    if any(each.covers(ENGINE_TAINT) for each in request.tolerations):
        raise ClaimObstacleError(f"{where} tolerates {ENGINE_TAINT}: the scheduler allocates it")
    return DeviceWish(
        claim.uid,
        request.name,
        int(FULL) if request.cores is None else request.cores,
        None if request.memory is None else MiB(request.memory),
        request.count,
        gpus.admit((*found.selectors, *request.selectors)),
    )


def _read_constraint(
    constraint: ClaimConstraint,
    members: tuple[int, ...],
    wishes: Sequence[DeviceWish],
    gpus: OfferedGpus,
) -> DeviceConstraint:
    if constraint.attribute in _IDENTITIES:
        if not constraint.distinct:
            return DeviceConstraint(ConstraintKind.ONE_GPU, members)
        if len({wishes[at].admitted for at in members}) > 1:
            raise ClaimObstacleError(f"{constraint} between requests with different selectors")
        return DeviceConstraint(ConstraintKind.DIFFERENT_GPUS, members)
    if constraint.distinct:
        raise ClaimObstacleError(str(constraint))
    groups = gpus.group(constraint.attribute)
    return DeviceConstraint(ConstraintKind.ONE_GROUP, members, groups)


def _describe(device: OfferedDevice) -> tuple[object, ...]:
    """What selectors can see of it."""
    return device.name, dict(device.attributes), dict(device.capacity)
