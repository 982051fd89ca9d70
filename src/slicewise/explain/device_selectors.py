"""Which devices the selectors of claims choose.

What an expression reads of a device decides about it, so devices that are alike in that are judged
once. Of an expression that is not understood it is said that it was not evaluated, and why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from slicewise.explain.cel.functions import (
    Absent,
    CelError,
    CelSyntaxError,
    MissingKeyError,
    read_amount,
    read_version,
)
from slicewise.explain.cel.parser import Program, parse
from slicewise.model.claim import DRIVER, OfferedDevice, SemanticVersion

_ATTRIBUTES: Final = "attributes"
_CAPACITY: Final = "capacity"
# In how many ways an expression may read a device to be remembered, and results of each.
_MOST_PATHS: Final = 8
_MOST_RESULTS: Final = 64
_Typed = tuple[type, object]
_Path = tuple[tuple[str, str], ...]


class UnknownNameError(Exception):
    """The selector names an attribute or a capacity that the device does not have."""


@dataclass(slots=True)
class _Selector:
    """An expression, and what it said of devices by what it read of them."""

    program: Program
    known: dict[_Path, dict[tuple[_Typed, ...], bool]] = field(default_factory=dict)

    def judge(self, device: OfferedDevice) -> bool:
        for path, results in self.known.items():
            known = results.get(tuple(_look_up(device, kind, key) for kind, key in path))
            if known is not None:
                return known
        seen = _SeenDevice(device)
        try:
            chosen = self.program.evaluate({"device": seen.variables})
        except MissingKeyError as error:
            raise UnknownNameError(f"{error}: the GPUs have {seen.list_known()}") from error
        if not isinstance(chosen, bool):
            raise CelError("expected true or false")
        if not seen.listed:
            self._remember(seen.reads, chosen)
        return chosen

    def _remember(self, reads: Mapping[tuple[str, str], _Typed], chosen: bool) -> None:
        results = self.known.get(tuple(reads))
        if results is None:
            if len(self.known) >= _MOST_PATHS:
                return
            results = self.known[tuple(reads)] = {}
        if len(results) < _MOST_RESULTS:
            results[tuple(reads.values())] = chosen


def matches(expression: str, device: OfferedDevice) -> bool | None:
    """Whether the device is selected; None where the expression was not evaluated."""
    selector = _read(expression)
    if isinstance(selector, str):
        return None
    try:
        return selector.judge(device)
    except CelError:
        return None


def find_fault(expression: str, device: OfferedDevice) -> str:
    """Why an expression was not evaluated; empty where it was."""
    selector = _read(expression)
    if isinstance(selector, str):
        return selector
    try:
        selector.judge(device)
    except (CelError, UnknownNameError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _read(expression: str) -> _Selector | str:
    """The expression as it is evaluated, or what of it is not understood."""
    try:
        return _Selector(parse(expression))
    except CelSyntaxError as error:
        return str(error)


def _look_up(device: OfferedDevice, kind: str, key: str) -> _Typed:
    """What is known of a device, with its type, for a number is no truth."""
    known: Mapping[str, object] = device.attributes if kind == _ATTRIBUTES else device.capacity
    value = known.get(key, Absent)
    return type(value), value


class _SeenDevice:
    """A device as expressions see it, which notes what they read."""

    def __init__(self, device: OfferedDevice) -> None:
        self.device = device
        self.reads: dict[tuple[str, str], _Typed] = {}
        self.listed = False
        """Whether names were listed, so that more was read than can be told."""
        self.variables = {
            "driver": DRIVER,
            _ATTRIBUTES: _Domains(self, _ATTRIBUTES),
            _CAPACITY: _Domains(self, _CAPACITY),
            "allowMultipleAllocations": True,
        }

    def read(self, kind: str, key: str) -> Any:
        """The value as expressions calculate with it; Absent where there is none."""
        found = _look_up(self.device, kind, key)
        self.reads[kind, key] = found
        value = found[1]
        if value is Absent:
            return Absent
        if kind == _CAPACITY:
            return read_amount(value)
        return read_version(str(value)) if isinstance(value, SemanticVersion) else value

    def list_known(self) -> str:
        """The names beside the one that was read last."""
        kind = next(reversed(self.reads), (_ATTRIBUTES, ""))[0]
        return ", ".join(self.keys(kind))

    def keys(self, kind: str) -> list[str]:
        self.listed = True
        known: Mapping[str, object] = self.device.attributes
        return sorted(known if kind == _ATTRIBUTES else self.device.capacity)


class _Domains(Mapping[str, Any]):
    """Attributes or capacities by domain; one that is not there is empty, as Kubernetes has it."""

    def __init__(self, seen: _SeenDevice, kind: str) -> None:
        self._seen = seen
        self._kind = kind

    def __getitem__(self, domain: str) -> Any:
        return _Names(self._seen, self._kind, domain)

    def __contains__(self, domain: object) -> bool:
        return domain in set(self)

    def __iter__(self) -> Iterator[str]:
        found = {key.rpartition("/")[0] or DRIVER for key in self._seen.keys(self._kind)}
        return iter(sorted(found))

    def __len__(self) -> int:
        return len(list(iter(self)))


class _Names(Mapping[str, Any]):
    """What a device has in one domain."""

    def __init__(self, seen: _SeenDevice, kind: str, domain: str) -> None:
        self._seen = seen
        self._kind = kind
        self._prefix = "" if domain == DRIVER else f"{domain}/"

    def __getitem__(self, name: str) -> Any:
        found = self._seen.read(self._kind, f"{self._prefix}{name}") if "/" not in name else Absent
        if found is Absent:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        for key in self._seen.keys(self._kind):
            domain, _, name = key.rpartition("/")
            if (f"{domain}/" if domain else "") == self._prefix:
                yield name

    def __len__(self) -> int:
        return len(list(iter(self)))
