"""The values and functions of CEL that selectors use: texts, quantities, versions, optionals."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from slicewise.model import QuantityError, SlicewiseError
from slicewise.model.quantity import parse_quantity

_MAX_PATTERN: Final = 256
_MAX_MATCHED: Final = 1024
_MAX_REPEATS: Final = 2
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)


class CelSyntaxError(SlicewiseError):
    """An expression has something that is not known here."""


class CelError(SlicewiseError):
    """An expression has no value for this device."""


class MissingKeyError(CelError):
    """An expression reads something that is not there."""


class _AbsentType:
    """What is not there."""


Absent: Final = _AbsentType()


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    value: Any = Absent


@dataclass(frozen=True, slots=True)
class Amount:
    """A Kubernetes quantity."""

    exact: Fraction


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version, by what it is ordered by."""

    numbers: tuple[int, int, int]
    before: tuple[tuple[bool, int, str], ...] = ()
    """What marks it as earlier than the release of the same numbers."""

    @property
    def rank(self) -> tuple[Any, ...]:
        """What versions are ordered by."""
        return (self.numbers, not self.before, self.before)


def read_amount(text: object) -> Amount:
    try:
        return Amount(parse_quantity(_text(text)))
    except QuantityError as error:
        raise CelError(str(error)) from error


def read_version(text: object) -> Version:
    found = _SEMVER.fullmatch(_text(text))
    if found is None or len(str(text)) > _MAX_MATCHED:
        raise CelError(f"{text!r}: expected a version like 1.2.3")
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    words = found[4].split(".") if found[4] else []
    return Version(
        numbers,
        tuple((not w.isdigit(), int(w) if w.isdigit() else 0, w) for w in words),
    )


def find_member(value: Any, key: object) -> Any:
    """What a map has under a key or a list at a place; Absent where there is nothing."""
    if isinstance(value, Mapping):
        return value.get(key, Absent) if isinstance(key, str) else Absent
    if isinstance(value, Sequence) and not isinstance(value, str):
        if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(value):
            return value[key]
        return Absent
    raise CelError(f"{key}: its owner has no fields")


def same(a: Any, b: Any) -> bool:
    """Equality: values of different kinds are different, and numbers are compared as such."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def order(a: Any, b: Any) -> int:
    """Below, at or above 0 as the first is less, equal or more; raises where there is no order."""
    if isinstance(a, bool) and isinstance(b, bool):
        return int(a) - int(b)
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if (
        isinstance(a, bool)
        or isinstance(b, bool)
        or not (numbers or (isinstance(a, str) and isinstance(b, str)))
    ):
        raise CelError("values of different kinds have no order")
    return int(a > b) - int(a < b)


def _compare(a: object, b: object) -> int:
    """The order of two quantities or two versions."""
    if isinstance(a, Amount) and isinstance(b, Amount):
        return (a.exact > b.exact) - (a.exact < b.exact)
    if isinstance(a, Version) and isinstance(b, Version):
        return int(a.rank > b.rank) - int(a.rank < b.rank)
    raise CelError("compareTo: expected two quantities or two versions")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CelError("expected a text")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CelError("expected a whole number")
    return value


def _amount(value: object) -> Fraction:
    if isinstance(value, Amount):
        return value.exact
    return Fraction(_whole(value))


def _version(value: object) -> Version:
    if not isinstance(value, Version):
        raise CelError("expected a version")
    return value


def _size(value: object) -> int:
    if isinstance(value, str | Sequence | Mapping):
        return len(value)
    raise CelError("size: expected a text, a list or a map")


@lru_cache(maxsize=256)
def _read_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern that is matched in time: few repetitions, and none of groups.

    Python's patterns try ways one after the other, where CEL's never take longer than the text.
    """
    plain = re.sub(r"\\.", "_", pattern)
    plain = re.sub(r"\[[^\]]*\]", "_", plain)
    repeats = len(re.findall(r"[*+]|\{\d", plain))
    if len(pattern) > _MAX_PATTERN or repeats > _MAX_REPEATS:
        raise CelError("matches: expected at most two repetitions")
    if re.search(r"\)[*+?{]|\(\?", plain) or re.search(r"\\[0-9pPzAQEC]", pattern):
        raise CelError("matches: repeated groups and special forms are not evaluated")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise CelError(f"matches: {error}") from error


def _matches(text: object, pattern: object) -> bool:
    subject = _text(text)
    if len(subject) > _MAX_MATCHED:
        raise CelError("matches: the text is too long")
    return _read_pattern(_text(pattern)).search(subject) is not None


def _lower(text: object) -> str:
    return "".join(each.lower() if each.isascii() else each for each in _text(text))


def _upper(text: object) -> str:
    return "".join(each.upper() if each.isascii() else each for each in _text(text))


def _substring(text: object, start: object, end: object = None) -> str:
    value = _text(text)
    last = len(value) if end is None else _whole(end)
    if not 0 <= _whole(start) <= last <= len(value):
        raise CelError("substring: out of range")
    return value[_whole(start) : last]


def _replace(text: object, old: object, new: object) -> str:
    value, gone, added = _text(text), _text(old), _text(new)
    if (len(value) + 1) * max(1, len(added)) > 1 << 16:
        raise CelError("replace: the text would grow too large")
    return value.replace(gone, added)


def _value(optional: object) -> Any:
    if not isinstance(optional, Optional) or optional.value is Absent:
        raise CelError("value: there is none")
    return optional.value


def _or_value(optional: object, other: Any) -> Any:
    if not isinstance(optional, Optional):
        raise CelError("orValue: expected an optional")
    return other if optional.value is Absent else optional.value


def _or(optional: object, other: Any) -> Any:
    if not isinstance(optional, Optional):
        raise CelError("or: expected an optional")
    return other if optional.value is Absent else optional


def _is(read: Callable[[object], object]) -> Callable[[object], bool]:
    def test(text: object) -> bool:
        try:
            read(_text(text))
        except CelError:
            return False
        return True

    return test


def _to_int(value: object) -> int:
    try:
        if isinstance(value, str) and len(value) < 20:
            return int(value)
    except ValueError as error:
        raise CelError(f"int: {error}") from error
    if isinstance(value, float) and abs(value) < 2**63:
        return int(value)
    return _whole(value)


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise CelError("string: expected a text, a number or a truth")


def _as_integer(value: object) -> int:
    exact = _amount(value)
    if exact.denominator != 1 or abs(exact) >= 2**63:
        raise CelError("asInteger: not a whole number")
    return exact.numerator


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": read_amount,
    "isQuantity": _is(read_amount),
    "semver": read_version,
    "isSemver": _is(read_version),
    "size": _size,
    "int": _to_int,
    "string": _to_text,
    "optional.of": Optional,
    "optional.none": Optional,
}
"""What is called by its name."""

METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "contains": lambda text, part: _text(part) in _text(text),
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "matches": _matches,
    "lowerAscii": _lower,
    "upperAscii": _upper,
    "trim": lambda text: _text(text).strip(),
    "split": lambda text, by: _text(text).split(_text(by)) if by else list(_text(text)),
    "replace": _replace,
    "substring": _substring,
    "indexOf": lambda text, part: _text(text).find(_text(part)),
    "size": _size,
    "compareTo": _compare,
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "isInteger": lambda value: _amount(value).denominator == 1,
    "asInteger": _as_integer,
    "sign": lambda value: (_amount(value) > 0) - (_amount(value) < 0),
    "add": lambda a, b: Amount(_amount(a) + _amount(b)),
    "sub": lambda a, b: Amount(_amount(a) - _amount(b)),
    "major": lambda version: _version(version).numbers[0],
    "minor": lambda version: _version(version).numbers[1],
    "patch": lambda version: _version(version).numbers[2],
    "hasValue": lambda optional: isinstance(optional, Optional) and optional.value is not Absent,
    "value": _value,
    "orValue": _or_value,
    "or": _or,
}
"""What is called on a value."""
