"""How `kubectl inspect gpushare` reads pods, which is more forgiving than placing them can be.

What cannot be read is 0, or is on no GPU; nothing is refused.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from slicewise.dialects.gpushare.pods import GIB
from slicewise.model import Pod, Quantity, Role, SlicewiseError, read_bytes

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}")


def measure_pod(pod: Pod) -> int:
    """Units of gpushare's memory the pod asks for; init containers count if nobody else asks."""
    main = sum(read_quantity(each.limits, GIB.memory) for each in pod.main_containers)
    others = [each.limits for each in pod.containers if each.role is not Role.MAIN]
    return main or max((read_quantity(each, GIB.memory) for each in others), default=0)


def read_quantity(amounts: Mapping[str, Quantity], resource: str) -> int:
    """A quantity as the original reads it: a whole number, rounded up."""
    value = amounts.get(resource)
    try:
        return 0 if value is None else read_bytes(resource, value)
    except SlicewiseError:
        return 0


def read_units(pod: Pod, size: int) -> dict[int, int]:
    """Units per GPU number: by the division, then by the index; -1 when neither can be read."""
    division = _read_division(pod.annotations.get(GIB.division, ""))
    if division:
        return division
    parts = pod.annotations.get(GIB.index, "").split(",")
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return {-1: size}
    numbers = sorted({int(part) for part in parts})
    return {
        number: size // len(numbers) + (at < size % len(numbers))
        for at, number in enumerate(numbers)
    }


def _read_division(text: str) -> dict[int, int]:
    """The division over GPUs, summed over containers; empty when any part cannot be read."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    found: dict[int, int] = {}
    for container, given in document.items():
        if not _NUMBER.fullmatch(container) or not isinstance(given, dict):
            return {}
        for number, units in given.items():
            if not _NUMBER.fullmatch(number) or type(units) is not int:
                return {}
            found[int(number)] = found.get(int(number), 0) + units
    return found
