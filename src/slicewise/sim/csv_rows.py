"""CSV files, plain or gzipped, row by row, with errors that say file, line, column and value."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from slicewise.model import TraceError

# One cell of an arrivals file holds a whole run.
_CELL_LIMIT: Final = 1 << 24
_LARGEST: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class CsvRow:
    path: Path
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell as it is; empty when the file has no such column."""
        return self.cells.get(column) or ""

    def number(self, column: str) -> int:
        """The cell as a whole number from 0."""
        text = self.text(column)
        if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > _LARGEST:
            raise self.error(column, "a whole number from 0")
        return int(text)

    def error(self, column: str, expected: str) -> TraceError:
        value = self.text(column)
        return TraceError(
            f"{self.path.name} line {self.line}: {column}={value[:40]!r}: expected {expected}"
        )


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[CsvRow]:
    csv.field_size_limit(_CELL_LIMIT)
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(
                    f"{path.name} line 1: column {missing[0]!r} is missing: "
                    f"expected {', '.join(columns)}"
                )
            for cells in reader:
                if None in cells or None in cells.values():
                    raise TraceError(
                        f"{path.name} line {reader.line_num}: "
                        f"expected {len(reader.fieldnames or ())} cells"
                    )
                yield CsvRow(path, reader.line_num, cells)
    except FileNotFoundError as error:
        raise TraceError(f"cannot read {path}: no such file") from error
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}") from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
