"""One lock per pod: everything done for a pod is serialized."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLocks:
    """Locks by name that exist only while they are held or awaited."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Wait for the lock of this name and keep it for the block."""
        lock, count = self._held.get(name, (None, 0))
        lock = lock or asyncio.Lock()
        self._held[name] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._held.pop(name)
            if count > 1:
                self._held[name] = (lock, count - 1)
