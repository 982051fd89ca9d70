"""A TTL cache with single-flight: answers that expire, each fetched once for all who wait."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """A bounded cache of answers, each with its own time to live; failures are not cached."""

    def __init__(
        self,
        ttl: Callable[[V], float],
        *,
        size: int = 8192,
        at_once: int = 64,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Keep each answer for as many seconds as `ttl` says of it."""
        self._ttl = ttl
        self._size = size
        self._clock = clock
        self._slots = asyncio.Semaphore(at_once)
        self._cached: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._flights: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        """The answer, from the cache until it expires."""
        found = self._cached.get(key)
        if found is not None and found[0] > self._clock():
            return found[1]
        task = self._flights.get(key)
        if task is None:
            task = self._flights[key] = asyncio.create_task(self._fetch(key, fetch))
        # Whoever leaves early must not take the answer from the others.
        return await asyncio.shield(task)

    async def _fetch(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        try:
            async with self._slots:
                answer = await fetch()
            self._cached[key] = (self._clock() + self._ttl(answer), answer)
            self._cached.move_to_end(key)
            while len(self._cached) > self._size:
                self._cached.popitem(last=False)
            return answer
        finally:
            del self._flights[key]
