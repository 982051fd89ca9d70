"""Annotation and label values as people and programs write them: numbers, lists, JSON.

Every reader names the field and the value it could not read.
"""

import json
import re
from typing import Final

from slicewise.model import DialectError, split_words
from slicewise.model.bounds import MAX_WORDS

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SHOWN: Final = 80
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


def annotation(key: str) -> str:
    """The annotation as error messages name it."""
    return f"annotation {key}"


def label(key: str) -> str:
    """The label as error messages name it."""
    return f"label {key}"


def refuse(field: str, text: object, expected: str) -> DialectError:
    """The error for a value that is not what its field allows."""
    shown = repr(text)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return DialectError(f"{field}={shown}: expected {expected}")


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def read_number(field: str, text: str, expected: str) -> int:
    if not is_number(text):
        raise refuse(field, text, expected)
    return int(text)


def read_words(text: str, field: str = "list") -> tuple[str, ...]:
    """The entries of a comma list, trimmed, empty ones left out."""
    words = tuple(entry for part in text.split(",") if (entry := part.strip()))
    if len(words) > MAX_WORDS:
        raise refuse(field, text, f"at most {MAX_WORDS} entries, not {len(words)}")
    return words


def read_models(field: str, text: str) -> tuple[str, ...]:
    """GPU model names; each must hold a letter or digit, or it could never match."""
    models = read_words(text, field)
    if not all(split_words(model) for model in models):
        raise refuse(field, text, "GPU model names like 'a10,a100'")
    return models


def read_json(field: str, text: str, expected: str) -> object:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(field, text, expected) from error
    return document


def write_json(document: object) -> str:
    """Compact JSON with sorted keys, so that equal values are equal text."""
    return _COMPACT.encode(document)


def is_count(value: object) -> bool:
    """Whether a JSON value is a whole number from 0 up, and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
