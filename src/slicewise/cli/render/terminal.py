"""What reaches a terminal: everything that a command prints passes here, and is escaped.

click takes colours out again wherever the output is no terminal.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from slicewise.model.styled_text import LINES, escape, escape_json, split_colours


def finish(text: str, keep: str = LINES) -> str:
    """Painted text for a terminal: colours unless NO_COLOR is set, and everything else escaped."""
    plain = bool(os.environ.get("NO_COLOR"))
    return "".join(
        ("" if plain else f"\x1b[{each}m") if at % 2 else escape(each, keep)
        for at, each in enumerate(split_colours(text))
    )


def echo(line: str, *, err: bool = False) -> None:
    """Print one line for people."""
    click.echo(finish(line, keep="\t"), err=err)


def echo_text(text: str) -> None:
    """Print lines for people, the last of which ends in a newline already."""
    click.echo(finish(text), nl=False)


def echo_json(value: Any) -> None:
    """Print a JSON document for programs."""
    click.echo(escape_json(json.dumps(value, indent=2)))


@contextmanager
def escaped_errors() -> Iterator[None]:
    """Errors that click prints, escaped."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = escape(error.message)
        raise
