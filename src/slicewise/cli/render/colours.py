"""Colours for terminals; click takes them out again wherever the output is no terminal."""

import os
from typing import Final

import click

GOOD: Final = "green"
BAD: Final = "red"
FAINT: Final = "bright_black"
NOTABLE: Final = "yellow"


def paint(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """The text in a colour, unless the person has asked for plain text."""
    if os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None)
