"""A stand-in for the ledger: takes what an informer hands over, and waits for states."""

import asyncio
from collections.abc import Callable, Sequence

from slicewise.kube.watch import Gone, Seen


class Follower:
    """The objects an informer told of, as whoever listens would know them."""

    def __init__(self, key: Callable[[object], str]) -> None:
        self.objects: dict[str, object] = {}
        self.changes: list[Seen | Gone] = []
        self._key = key
        self._changed = asyncio.Event()

    def take(self, changes: Sequence[Seen | Gone]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                self.objects[self._key(change.value)] = change.value
            else:
                self.objects.pop(change.key, None)
        self.changes.extend(changes)
        self._changed.set()

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.objects.values())

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return once the state is reached; fail after ten seconds without it."""
        async with asyncio.timeout(10):
            while not reached():
                await self._changed.wait()
                self._changed.clear()
