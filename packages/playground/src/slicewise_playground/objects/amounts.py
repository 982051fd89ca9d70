"""Amounts in objects: their canonical spelling, and the rules between requests and limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from slicewise.model import QuantityError
from slicewise_playground.objects.errors import FieldError, bad_value, required
from slicewise_playground.objects.quantity import parse, round_up
from slicewise_playground.objects.resources import Object

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "storage", "pods"})
BAD_QUANTITY = "quantities must be a number with an optional suffix, such as 500m, 2, 1k or 16Gi"


def spell_amounts(amounts: Mapping[str, Any], field: str) -> tuple[Object, list[FieldError]]:
    """The amounts in canonical spelling, and those that are no amounts."""
    spelled: Object = {}
    problems: list[FieldError] = []
    for name, value in amounts.items():
        try:
            spelled[name] = round_up(str(value))
        except QuantityError:
            spelled[name] = str(value)
            problems.append(bad_value(f"{field}[{name}]", str(value), BAD_QUANTITY))
    return spelled, problems


def spell_container(container: Object, field: str) -> list[FieldError]:
    """Spell a container's amounts and copy limits into missing requests, in place."""
    resources = container.setdefault("resources", {})
    if resources is None:
        resources = container["resources"] = {}
    problems: list[FieldError] = []
    for part in ("limits", "requests"):
        if resources.get(part):
            spelled, found = spell_amounts(resources[part], f"{field}.resources.{part}")
            resources[part] = spelled
            problems += found
    limits = resources.get("limits") or {}
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    return problems


def spell_node(node: Object) -> list[FieldError]:
    """Spell a node's amounts in place; an absent allocatable is the capacity."""
    status = node.get("status") or {}
    problems: list[FieldError] = []
    for part in ("capacity", "allocatable"):
        if status.get(part):
            status[part], found = spell_amounts(status[part], f"status.{part}")
            problems += found
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    return problems


def check_amounts(container: Object, field: str) -> list[FieldError]:
    """What is wrong between requests and limits, once both are spelled."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    problems = list(_check_signs(limits, f"{field}.resources.limits"))
    problems += _check_signs(requests, f"{field}.resources.requests")
    for name, value in requests.items():
        place = f"{field}.resources.requests"
        if name not in limits:
            if is_extended(name):
                where = f"{field}.resources.limits"
                problems.append(required(where, f"{name} cannot be overcommitted"))
            continue
        if is_extended(name) and parse(value) != parse(limits[name]):
            words = f"must be equal to {name} limit of {limits[name]}"
            problems.append(bad_value(place, value, words))
        elif parse(value) > parse(limits[name]):
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            problems.append(bad_value(place, value, words))
    return problems


def is_extended(name: str) -> bool:
    """Whether the resource is one that a device plugin or an administrator adds."""
    return "/" in name and not name.startswith("kubernetes.io/")


def quality(pod: Object) -> str:
    """The quality of service class, which only cpu and memory decide."""
    spec = pod["spec"]
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    sized = [
        {
            part: {
                name: value
                for name, value in ((container.get("resources") or {}).get(part) or {}).items()
                if name in {"cpu", "memory"} and parse(value) > 0
            }
            for part in ("limits", "requests")
        }
        for container in containers
    ]
    if not any(size["limits"] or size["requests"] for size in sized):
        return "BestEffort"
    guaranteed = all(
        set(size["limits"]) == {"cpu", "memory"} and size["limits"] == size["requests"]
        for size in sized
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _check_signs(amounts: Mapping[str, str], field: str) -> Iterator[FieldError]:
    """Amounts below zero, and extended amounts that are no integers."""
    for name, value in amounts.items():
        place = f"{field}[{name}]"
        if parse(value) < 0:
            yield bad_value(place, value, "must be greater than or equal to 0")
        elif is_extended(name) and parse(value).denominator != 1:
            yield bad_value(place, value, "must be an integer")
        elif name not in NATIVE and "/" not in name and not name.startswith("hugepages-"):
            yield bad_value(place, name, "must be a standard resource type or fully qualified")
