"""What clients are told, in revisions: each asks for what changed since the one it has.

A client holds one number and no queue, so that one that reads slowly gets fewer and larger steps
instead of a backlog. What was dropped is remembered for a while; whoever asks from before that
starts again.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import msgspec

SECTIONS: Final = (
    "about",
    "models",
    "totals",
    "points",
    "waiting",
    "quota",
    "troubles",
    "usage",
    "nodes",
)
"""In the order in which a client needs them."""
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class TableRow:
    revision: int
    body: bytes


class PageTable:
    """Rows by key, in the order of their last change, and the keys that were dropped."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._rows: OrderedDict[str, TableRow] = OrderedDict()
        self._dropped: deque[tuple[int, str]] = deque()
        self._remembered = remembered
        self.floor = 0
        """The oldest revision from which it is known what was dropped."""

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: str, body: bytes, revision: int) -> bool:
        """Add or replace a row; false when it says the same already."""
        known = self._rows.get(key)
        if known is not None and known.body == body:
            return False
        self._rows[key] = TableRow(revision, body)
        self._rows.move_to_end(key)
        return True

    def drop(self, key: str, revision: int) -> bool:
        """Remove a row; false when there was none."""
        if self._rows.pop(key, None) is None:
            return False
        self._dropped.append((revision, key))
        while len(self._dropped) > self._remembered:
            self.floor = self._dropped.popleft()[0]
        return True

    def names(self) -> list[str]:
        """Every key, least recently changed first."""
        return list(self._rows)

    def bodies(self) -> list[bytes]:
        """Every row, in the order of the keys."""
        return [self._rows[key].body for key in sorted(self._rows)]

    def since(self, revision: int) -> tuple[list[bytes], list[str]]:
        """The rows that changed after a revision, and the keys that are gone since."""
        newer = takewhile(lambda row: row.revision > revision, reversed(self._rows.values()))
        dropped = takewhile(lambda each: each[0] > revision, reversed(self._dropped))
        gone = dict.fromkeys(key for _, key in dropped if key not in self._rows)
        return [row.body for row in newer], list(gone)


class PageTables:
    """Every section, the revision they are at, and who waits for the next."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        """Tells the revisions of this process from those of another."""
        self.revision = 0
        self.sections = {name: PageTable() for name in SECTIONS}
        self._changed = False
        self._news = asyncio.Event()

    def put(self, section: str, key: str, row: object) -> None:
        """Add or replace a row; clients see it from the next `publish` on."""
        body = row if isinstance(row, bytes) else msgspec.json.encode(row)
        self._changed |= self.sections[section].put(key, body, self.revision + 1)

    def drop(self, section: str, key: str) -> None:
        self._changed |= self.sections[section].drop(key, self.revision + 1)

    def replace(self, section: str, rows: Mapping[str, object]) -> None:
        """Have exactly these rows in a section."""
        for key in self.sections[section].names():
            if key not in rows:
                self.drop(section, key)
        for key, row in rows.items():
            self.put(section, key, row)

    def publish(self) -> bool:
        """Make what changed the next revision, and wake whoever waits for it."""
        if not self._changed:
            return False
        self._changed = False
        self.revision += 1
        news, self._news = self._news, asyncio.Event()
        news.set()
        return True

    async def wait(self, revision: int) -> None:
        """Return once there is a newer revision than this."""
        while self.revision <= revision:
            await self._news.wait()

    def version(self) -> str:
        """The present revision, as clients hand it back."""
        return f"{self.epoch}.{self.revision}"

    def read_version(self, text: str) -> int | None:
        """The revision from which a client can be told what changed; None when it must begin."""
        epoch, _, number = text.rpartition(".")
        if epoch != self.epoch or not number.isdecimal():
            return None
        revision = int(number)
        floor = max(table.floor for table in self.sections.values())
        return revision if floor <= revision <= self.revision else None

    def encode_since(self, revision: int) -> bytes:
        """One JSON object with everything that changed after a revision."""
        parts = []
        for name, table in self.sections.items():
            rows, gone = table.since(revision)
            if rows or gone:
                parts.append(_section(name, rows, gone))
        return b"{" + b",".join(parts) + b"}"

    def encode_all(self, most: int) -> Iterator[bytes]:
        """Everything, as JSON objects of at most so many rows of a section each."""
        *small, (last, long) = self.sections.items()
        parts = [_section(name, table.bodies()) for name, table in small if len(table)]
        bodies = long.bodies()
        parts.append(_section(last, bodies[:most]))
        yield b'{"reset":true,' + b",".join(parts) + b"}"
        for at in range(most, len(bodies), most):
            yield b"{" + _section(last, bodies[at : at + most]) + b"}"


def _section(name: str, rows: Sequence[bytes], gone: Sequence[str] = ()) -> bytes:
    left = b',"gone":' + msgspec.json.encode(gone) if gone else b""
    return b'"%b":{"rows":[%b]%b}' % (name.encode(), b",".join(rows), left)
