"""The selectors of claims that can be told without an evaluator of CEL.

Comparisons of attributes and capacities, joined by `&&`, are what nearly all claims write; of
anything else it is said that it was not evaluated, and never guessed.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from slicewise.model import QuantityError
from slicewise.model.claim import DRIVER, OfferedDevice
from slicewise.model.quantity import parse_quantity

# Both sides are of one type, and of a type that has an order.
_Compare = Callable[[Any, Any], bool]
_OPERATORS: Final[Mapping[str, _Compare]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_METHODS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": operator.contains,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_OP: Final = r"\s*(==|!=|<=|>=|<|>)\s*"
_TEXT: Final = r"(?:\"([^\"\\]*)\"|'([^'\\]*)')"
_OF: Final = rf"\[\s*{_TEXT}\s*\]\.(\w+)"
_DRIVER: Final = re.compile(rf"device\.driver{_OP}{_TEXT}")
_VALUE: Final = re.compile(
    rf"device\.attributes{_OF}{_OP}(?:{_TEXT}|(-?\d+)|(true|false))", re.ASCII
)
_METHOD: Final = re.compile(
    rf"device\.attributes{_OF}(\.lowerAscii\(\))?\.(contains|startsWith|endsWith)\({_TEXT}\)"
)
_CAPACITY: Final = re.compile(
    rf"device\.capacity{_OF}\.compareTo\(\s*quantity\({_TEXT}\)\s*\){_OP}0"
)


class UnknownNameError(Exception):
    """The selector names an attribute or a capacity that the device does not have."""


def matches(expression: str, device: OfferedDevice) -> bool | None:
    """Whether the device is selected; None where that takes more than comparisons."""
    if "||" in expression or "?" in expression:
        return None
    known = [_match_term(term.strip(), device) for term in expression.split("&&")]
    if False in known:
        return False
    return None if None in known else True


def _match_term(term: str, device: OfferedDevice) -> bool | None:
    while term.startswith("(") and term.endswith(")"):
        term = term[1:-1].strip()
    if found := _DRIVER.fullmatch(term):
        op, *text = found.groups()
        return _OPERATORS[op](DRIVER, _pick(text))
    if found := _VALUE.fullmatch(term):
        return _match_value(found, device)
    if found := _METHOD.fullmatch(term):
        one, two, name, lower, method, *text = found.groups()
        value = str(_find(device.attributes, one or two, name))
        return _METHODS[method](value.lower() if lower else value, _pick(text))
    if found := _CAPACITY.fullmatch(term):
        one, two, name, first, second, op = found.groups()
        capacity = _find(device.capacity, one or two, name)
        try:
            return _OPERATORS[op](parse_quantity(str(capacity)), parse_quantity(first or second))
        except QuantityError:
            return None
    return None


def _match_value(found: re.Match[str], device: OfferedDevice) -> bool | None:
    one, two, name, op, first, second, number, word = found.groups()
    value = _find(device.attributes, one or two, name)
    other: object = _pick((first, second))
    if number is not None:
        other = int(number)
    elif word is not None:
        other = word == "true"
    # Texts and numbers have no order between them, and CEL would refuse the expression.
    return _OPERATORS[op](value, other) if type(value) is type(other) else None


def _pick(texts: Sequence[str | None]) -> str:
    return next((each for each in texts if each is not None), "")


def _find(known: Mapping[str, object], domain: str, name: str) -> object:
    key = name if domain == DRIVER else f"{domain}/{name}"
    if key not in known:
        raise UnknownNameError(f"{key}: the GPUs have {', '.join(sorted(known))}")
    return known[key]
