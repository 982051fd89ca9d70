"""Faults on demand: wrong answers, silence, cut connections, late events, lost outcomes.

A fault matches requests by verb and resource, and wears off after so many of them.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from slicewise_playground.objects.resources import Object

Action: TypeAlias = Literal["status", "hang", "cut", "delay"]
ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """What happens to matching requests."""

    action: Action = "status"
    """`status` answers with the code, `hang` never answers, `cut` closes the connection in the
    middle of the answer, `delay` answers late."""
    verb: str = ANY
    """get, list, watch, create, update, patch, delete or deletecollection."""
    resource: str = ANY
    """A plural such as `pods`, or with its subresource such as `pods/binding`."""
    namespace: str = ANY
    name: str = ANY
    code: int = 500
    """The HTTP status of a `status` fault."""
    retry_after: int | None = None
    """Seconds in the Retry-After header."""
    seconds: float = 1.0
    """How late a `delay` fault answers."""
    times: int | None = 1
    """How many requests it affects; none means all until cleared."""
    after: bool = False
    """Whether the request is carried out first, so that only its outcome is lost."""

    def matches(self, asked: "FaultTarget") -> bool:
        """Whether the fault is meant for a request."""
        return (
            self.verb in {ANY, asked.verb}
            and self.resource in {ANY, asked.resource}
            and self.namespace in {ANY, asked.namespace}
            and self.name in {ANY, asked.name}
        )


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """The parts of a request that faults look at."""

    verb: str
    resource: str
    namespace: str
    name: str


class FaultInjector:
    """The faults in force."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._faults: list[tuple[InjectedFault, int | None]] = []
        self._delays: dict[str, float] = {}
        self.expired_as_status = False
        """Whether a watch from an expired revision is refused with HTTP 410 rather than in the
        stream."""

    def add(self, fault: InjectedFault) -> None:
        """Inject one more fault; the oldest that matches is used first."""
        with self._lock:
            self._faults.append((fault, fault.times))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()
            self._delays.clear()
            self.expired_as_status = False

    def delay_events(self, seconds: float, resource: str = ANY) -> None:
        """Hold back watch events of a resource for so long; 0 ends it."""
        with self._lock:
            self._delays[resource] = seconds

    def event_delay(self, resource: str) -> float:
        """For how long events of a resource are held back."""
        if not self._delays:
            return 0.0
        return self._delays.get(resource, self._delays.get(ANY, 0.0))

    def match(self, asked: FaultTarget) -> InjectedFault | None:
        """The oldest fault that matches a request, counted as used."""
        if not self._faults:
            return None
        with self._lock:
            for place, (fault, left) in enumerate(self._faults):
                if fault.matches(asked):
                    if left is not None and left <= 1:
                        del self._faults[place]
                    elif left is not None:
                        self._faults[place] = (fault, left - 1)
                    return fault
        return None

    def listed(self) -> Object:
        """The faults in force, for people."""
        with self._lock:
            rows = [{**asdict(fault), "times": left} for fault, left in self._faults]
            return {"faults": rows, "event_delays": dict(self._delays)}


def read_fault(body: Any) -> InjectedFault:
    """A fault from JSON; raises ValueError naming the field that is wrong."""
    if isinstance(body, Mapping):
        unknown = set(body) - set(InjectedFault.__dataclass_fields__)
        if unknown:
            known = ", ".join(sorted(InjectedFault.__dataclass_fields__))
            raise ValueError(f"fault field {sorted(unknown)[0]!r}: expected one of {known}")
    try:
        return msgspec.convert(body, InjectedFault)
    except msgspec.ValidationError as error:
        raise ValueError(f"fault: {error}") from error
