"""Looks after the informers of one service: which watches are stale, and what is skipped."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog

from slicewise.kube.watch.bad_objects import BadObject
from slicewise.kube.watch.informer import Informer

_log = structlog.get_logger(__name__)
_LOOK_SECONDS: Final = 1.0


class WatchMonitor:
    def __init__(self) -> None:
        self._informers: list[Informer[Any, Any]] = []
        self._stale: set[int] = set()

    def add(self, informer: Informer[Any, Any]) -> None:
        self._informers.append(informer)

    @property
    def stale(self) -> str | None:
        """Which watch is stale, and since when; None when all are current."""
        late = [each for each in self._informers if each.stale]
        if not late:
            return None
        worst = max(late, key=lambda each: each.age)
        return f"watch of {worst.resource} stale for {worst.age:.0f} s"

    @property
    def ages(self) -> Mapping[str, float]:
        """Seconds since each watch was last proven current, by resource; the most of several."""
        found: dict[str, float] = {}
        for each in self._informers:
            found[each.resource] = max(each.age, found.get(each.resource, 0.0))
        return found

    @property
    def skipped(self) -> Mapping[str, int]:
        """How often an object was skipped so far, by resource."""
        found: dict[str, int] = {}
        for each in self._informers:
            found[each.resource] = found.get(each.resource, 0) + each.bad.total
        return found

    @property
    def bad_objects(self) -> tuple[BadObject, ...]:
        """What is skipped at present."""
        return tuple(bad for each in self._informers for bad in each.bad.found.values())

    async def run(self) -> None:
        """Log when a watch becomes stale and when it is current again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        for at, informer in enumerate(self._informers):
            if informer.stale and at not in self._stale:
                self._stale.add(at)
                _log.error("watch stale", resource=informer.resource, seconds=int(informer.age))
            elif not informer.stale and at in self._stale:
                self._stale.discard(at)
                _log.info("watch current again", resource=informer.resource)
