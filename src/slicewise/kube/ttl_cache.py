"""Answers remembered for a short while, each asked for once however many want it at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """A bounded memory of answers; failures are not remembered."""

    def __init__(
        self,
        lasts: Callable[[V], float],
        *,
        size: int = 8192,
        at_once: int = 64,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Remember each answer for as many seconds as `lasts` says of it."""
        self._lasts = lasts
        self._size = size
        self._clock = clock
        self._gate = asyncio.Semaphore(at_once)
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer, from memory while it lasts."""
        found = self._known.get(key)
        if found is not None and found[0] > self._clock():
            return found[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, ask))
        # Whoever leaves early must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            async with self._gate:
                answer = await ask()
            self._known[key] = (self._clock() + self._lasts(answer), answer)
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
            return answer
        finally:
            del self._asking[key]
