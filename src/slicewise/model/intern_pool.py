"""Equal values kept once, for a cluster repeats them thousands of times."""

from collections.abc import Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")
# What an entry costs beside its letters, and what all entries may cost.
_ENTRY_BYTES: Final = 256
_MOST_BYTES: Final = 32 << 20


class InternPool:
    """Interns equal values; it is emptied when full, since interning is only an optimization."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._kept: dict[Hashable, Any] = {}

    def find(self, key: Hashable) -> Any:
        """The interned value of this key, if there is one."""
        return self._kept.get(key)

    def intern(self, key: Hashable, value: T) -> T:
        """The interned value of this key; this one if there was none."""
        kept: T | None = self._kept.get(key)
        if kept is not None:
            return kept
        self._bytes += _ENTRY_BYTES + _count_letters(key)
        if self._bytes > self._most:
            self._kept.clear()
            self._bytes = _ENTRY_BYTES + _count_letters(key)
        self._kept[key] = value
        return value


def _count_letters(key: Hashable) -> int:
    if isinstance(key, str):
        return len(key)
    return sum(map(_count_letters, key)) if isinstance(key, tuple) else 8
