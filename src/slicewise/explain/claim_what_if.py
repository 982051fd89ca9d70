"""What-if for claims: pods that do not exist yet are given devices, one after the other.

A node can take a pod when all requests of all its claims find devices there at once. As schedulers
do it, the first devices that fit are tried first, and others when the rest then finds none.
Constraints between requests are named and not tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby
from typing import Any, Final

from slicewise.explain.claim_explanation import (
    Held,
    describe_claim_request,
    explain_claim,
    find_lacking,
    find_problem,
)
from slicewise.explain.device_selectors import UnknownNameError, matches
from slicewise.model.claim import ClaimRequest, OfferedDevice, WantedClaim

# Beyond so many tries on one node it counts as one that does not fit.
_TRIES: Final = 20_000
Alternatives = tuple[ClaimRequest, ...]
"""What may stand for one request, the best first."""


@dataclass(frozen=True, slots=True)
class DevicePiece:
    """What one claim would get of one device."""

    claim: str
    device: OfferedDevice
    cores: int
    memory: int

    @property
    def text(self) -> str:
        gpu = self.device.attributes.get("index", self.device.name)
        return f"{self.claim}: {self.cores} percent and {self.memory} MiB of gpu {gpu}"


@dataclass(frozen=True, slots=True)
class ClaimPlace:
    """A node that can take all claims of a pod, and what each would get."""

    node: str
    pieces: tuple[DevicePiece, ...]


@dataclass(slots=True)
class ClaimOffers:
    """What claims may be given: the devices in their order, and what is given out already."""

    devices: Sequence[OfferedDevice]
    held: Held
    classes: Mapping[str, tuple[str, ...]]
    """The selectors of each device class."""
    _selected: dict[tuple[str, str, str], bool] = field(default_factory=dict)

    def hold(self, place: ClaimPlace) -> "ClaimOffers":
        """The same with this given out as well."""
        held = dict(self.held)
        for piece in place.pieces:
            _add(held, piece)
        return ClaimOffers(self.devices, held, self.classes, self._selected)

    def on(self, nodes: Sequence[str]) -> "ClaimOffers":
        """The devices of these nodes alone."""
        kept = set(nodes)
        devices = [each for each in self.devices if each.node in kept]
        return ClaimOffers(devices, self.held, self.classes, self._selected)

    def selects(self, request: ClaimRequest, device: OfferedDevice) -> bool:
        """Whether its class and its selectors choose the device; what cannot be told does."""
        selectors = (*self.classes.get(request.device_class, ()), *request.selectors)
        return all(self._match(each, device) for each in selectors)

    def _match(self, selector: str, device: OfferedDevice) -> bool:
        key = selector, device.node, device.name
        if key not in self._selected:
            try:
                self._selected[key] = matches(selector, device) is not False
            except UnknownNameError:
                self._selected[key] = False
        return self._selected[key]


def find_places(wanted: Sequence[WantedClaim], offers: ClaimOffers) -> Iterator[ClaimPlace]:
    """Every node that can take all of these claims, by name; one that has GPUs keeps its node."""
    fixed = {name for each in wanted if _has_devices(each) for name in each.claim.nodes}
    asking = [each for each in wanted if not _has_devices(each)]
    groups = [
        (each.claim.name, alternatives) for each in asking for alternatives in _group(each.requests)
    ]
    if any(all(_is_hopeless(each, offers) for each in group) for _, group in groups):
        return
    ordered = sorted(offers.devices, key=lambda each: each.node)
    for node, devices in groupby(ordered, key=lambda each: each.node):
        if fixed - {node}:
            continue
        pieces = _Search(offers, tuple(devices)).assign(groups, dict(offers.held))
        if pieces is not None:
            yield ClaimPlace(node, pieces)


def describe_asks(wanted: Sequence[WantedClaim]) -> str:
    """What the claims ask for, in words."""
    return "; ".join(
        f"{each.claim.name}: "
        + " and ".join(
            " or ".join(map(describe_claim_request, alternatives))
            for alternatives in _group(each.requests)
        )
        for each in wanted
    )


def explain_refusal(wanted: Sequence[WantedClaim], offers: ClaimOffers) -> dict[str, Any]:
    """Why no node can take the claims: a summary, and per node and GPU what it lacks."""
    claims = [explain_claim(each, offers.devices, offers.held, offers.classes) for each in wanted]
    nodes = len({each.node for each in offers.devices})
    summary = f"0 of {nodes} nodes that offer GPUs to claims can take it"
    told = [request for claim in claims for request in claim.get("requests", ())]
    if nodes and told and all(request["fits"] for request in told):
        summary += ": each request fits somewhere, but not all of them on one node"
    return {"summary": summary, "claims": claims}


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """What becomes of the claims of one pod: the nodes that can take them, or why none can."""

    wanted: Sequence[WantedClaim]
    places: Mapping[str, ClaimPlace] = field(default_factory=dict)
    refusal: Mapping[str, Any] | None = None

    def tell(self, told: dict[str, Any]) -> dict[str, Any]:
        """The answer for what the pod asks for by resource names, with its claims."""
        asks = "; ".join(filter(None, (told.get("asks"), describe_asks(self.wanted))))
        if self.refusal is not None:
            left_out = {key: told[key] for key in ("leftOut",) if key in told}
            refused = {"fits": False, "asks": asks, "nodes": [], **self.refusal, **left_out}
            return {"pod": told["pod"], **refused}
        if not told["fits"]:
            return {**told, "asks": asks}
        place = self.places[told.get("node") or next(iter(self.places))]
        pieces = [piece.text for piece in place.pieces]
        held = [
            f"{each.claim.name}: it is allocated already"
            for each in self.wanted
            if each.claim.devices and not each.claim.refused
        ]
        untried = [rule for each in self.wanted for rule in each.constraints]
        answer = {key: value for key, value in told.items() if key != "summary"} | {
            "asks": asks,
            "node": place.node,
            "allocation": [*told.get("allocation", ()), *held, *pieces],
        }
        return {**answer, "notTried": untried} if untried else answer


def add_claims(answer: dict[str, Any], outcomes: Mapping[int, ClaimOutcome]) -> None:
    """Complete an answer by what becomes of claims."""
    for at, outcome in outcomes.items():
        answer["pods"][at] = outcome.tell(answer["pods"][at])
    answer["fitting"] = sum(bool(each["fits"]) for each in answer["pods"])
    answer["fits"] = answer["fitting"] == len(answer["pods"])


def place_claims(
    claims: Sequence[WantedClaim], offers: ClaimOffers, names: list[str] | None
) -> tuple[ClaimOutcome, ClaimOffers]:
    """What becomes of the claims of one pod, and what is left then."""
    asked = offers if names is None else offers.on(names)
    places = {each.node: each for each in find_places(claims, asked)}
    if not places:
        return ClaimOutcome(claims, refusal=explain_refusal(claims, asked)), offers
    first = next(iter(places.values()))
    return ClaimOutcome(claims, places), offers.hold(first)


def _has_devices(wanted: WantedClaim) -> bool:
    return bool(wanted.claim.devices) and not wanted.claim.refused


def _is_hopeless(request: ClaimRequest, offers: ClaimOffers) -> bool:
    return find_problem(request, offers.devices, offers.classes) is not None


def _group(requests: Sequence[ClaimRequest]) -> list[Alternatives]:
    """The requests, alternatives of one together."""
    listed = groupby(requests, key=lambda each: each.name.partition("/")[0])
    return [tuple(group) for _, group in listed]


def _add(held: dict[tuple[str, str], tuple[int, int]], piece: DevicePiece) -> None:
    key = piece.device.node, piece.device.name
    cores, memory = held.get(key, (0, 0))
    held[key] = cores + piece.cores, memory + piece.memory


class _Search:
    """Devices of one node for one request after the other, with a limit on what is tried."""

    def __init__(self, offers: ClaimOffers, devices: Sequence[OfferedDevice]) -> None:
        self._offers, self._devices = offers, devices
        self._left = _TRIES

    def assign(
        self,
        groups: Sequence[tuple[str, Alternatives]],
        held: dict[tuple[str, str], tuple[int, int]],
    ) -> tuple[DevicePiece, ...] | None:
        """What each request gets beside what is held; None when there is no such choice."""
        if not groups:
            return ()
        (claim, alternatives), *rest = groups
        for request in alternatives:
            for devices in self._choices(request, held):
                self._left -= 1
                if self._left < 0:
                    return None
                pieces = tuple(_cut(claim, request, each) for each in devices)
                after = dict(held)
                for piece in pieces:
                    _add(after, piece)
                more = self.assign(rest, after)
                if more is not None:
                    return pieces + more
        return None

    def _choices(self, request: ClaimRequest, held: Held) -> Iterator[tuple[OfferedDevice, ...]]:
        """The devices of one request are always different ones."""
        fitting = [
            each
            for each in self._devices
            if self._offers.selects(request, each)
            and not find_lacking(request, each, held.get((each.node, each.name), (0, 0)))
        ]
        if not request.every:
            yield from combinations(fitting, request.count)
        elif fitting:
            yield tuple(fitting)


def _cut(claim: str, request: ClaimRequest, device: OfferedDevice) -> DevicePiece:
    cores = device.whole_cores if request.cores is None else request.cores
    memory = device.whole_memory if request.memory is None else int(request.memory)
    return DevicePiece(claim, device, cores, memory)
