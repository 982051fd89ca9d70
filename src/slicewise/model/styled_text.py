"""Text for people to read on a terminal: what is escaped, what is coloured, how columns align.

Names, annotations, models and messages are other people's words. Whatever of them a terminal
could obey, and whatever would change how a line reads, is shown as an escape like `\\x1b`.
Colours are ours alone: they are marked until the text around them has been escaped. Columns are
elastic, padded as Go's tabwriter pads them: a cell ended by a tab is as wide as the widest cell of
its column in the block of neighbouring lines that have this column, and two spaces more. What
follows the last tab is left as it is.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Final

GOOD: Final = "green"
BAD: Final = "red"
FAINT: Final = "bright_black"
NOTABLE: Final = "yellow"
LINES: Final = "\n\t"
"""What is kept in text of several lines."""
_PADDING: Final = 2
_CODES: Final = {GOOD: "32", BAD: "31", FAINT: "90", NOTABLE: "33"}
# Nobody else can write it, so that what stands behind it is a colour of ours.
_MARK: Final = f"\0{secrets.token_hex(8)}"
_MARKED: Final = re.compile(_MARK + "([0-9;]*)m")


def escape(text: str, keep: str = LINES) -> str:
    """The text with everything that is not printable as an escape, but for what is kept."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def escape_cell(text: str) -> str:
    """The text for one line or one column of it."""
    return escape(text, keep="")


def escape_json(text: str) -> str:
    """A JSON document with everything that is not printable escaped as JSON has it."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in LINES else _spell_json(each) for each in text
    )


def _spell_json(character: str) -> str:
    pairs = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


def paint(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """The text in a colour; only `split_colours` finds it again."""
    codes = [_CODES[colour]] if colour else []
    return f"{_MARK}{';'.join([*codes, *(['1'] if bold else [])])}m{text}{_MARK}0m"


def split_colours(text: str) -> list[str]:
    """Painted text in parts: text and codes of colours by turns, text first."""
    return _MARKED.split(text)


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
            width = max((len(rows[each][column]) for each in block), default=0) + _PADDING
            for each in block:
                widths[each][column] = width
            block = []
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, wide, strict=False)) + row[-1]
        for row, wide in zip(rows, widths, strict=True)
    ]
