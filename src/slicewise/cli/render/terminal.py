"""Colours and columns for terminals.

click takes colours out again wherever the output is no terminal. Columns are elastic, padded as
Go's tabwriter pads them: a cell ended by a tab is as wide as the widest cell of its column in the
block of neighbouring lines that have this column, and two spaces more. What follows the last tab
is left as it is.
"""

import os
from collections.abc import Sequence
from typing import Final

import click

GOOD: Final = "green"
BAD: Final = "red"
FAINT: Final = "bright_black"
NOTABLE: Final = "yellow"
PADDING: Final = 2


def paint(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """The text in a colour, unless the person has asked for plain text."""
    if os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None)


def align(lines: Sequence[str]) -> list[str]:
    """The lines with their tabs replaced by as many spaces as it takes."""
    rows = [line.split("\t") for line in lines]
    widths = [[0] * (len(row) - 1) for row in rows]
    for column in range(max((len(row) - 1 for row in rows), default=0)):
        block: list[int] = []
        for at, row in enumerate([*rows, [""]]):
            if column < len(row) - 1:
                block.append(at)
                continue
            width = max((len(rows[each][column]) for each in block), default=0) + PADDING
            for each in block:
                widths[each][column] = width
            block = []
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, wide, strict=False)) + row[-1]
        for row, wide in zip(rows, widths, strict=True)
    ]
