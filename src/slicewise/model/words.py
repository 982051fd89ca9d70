"""Words as people write them: GPU model names, and counts with the right plural.

A wanted name matches when its words stand side by side in the product name, in any letter case:
`3090` finds "NVIDIA GeForce RTX 3090", `a10` does not find "NVIDIA A100-SXM4-40GB".
"""

import re
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[a-z0-9]+")


@lru_cache(maxsize=4096)
def split_words(name: str) -> tuple[str, ...]:
    """The letters-and-digits words of a model name, lower-cased."""
    return tuple(_WORD.findall(name.lower()))


@lru_cache(maxsize=65536)
def model_matches(model: str, wanted: str) -> bool:
    """Whether the wanted words appear in the model's name, whole and in sequence."""
    words, parts = split_words(model), split_words(wanted)
    if not parts:
        return False
    return any(
        words[start : start + len(parts)] == parts for start in range(len(words) - len(parts) + 1)
    )


def model_admitted(model: str, wanted: Iterable[str], refused: Iterable[str]) -> bool:
    """Whether a GPU of this model satisfies the lists of wanted and refused names."""
    return _admitted(model, tuple(wanted), tuple(refused))


@lru_cache(maxsize=1024)
def _admitted(model: str, wanted: tuple[str, ...], refused: tuple[str, ...]) -> bool:
    if wanted and not any(model_matches(model, name) for name in wanted):
        return False
    return not any(model_matches(model, name) for name in refused)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun: "1 GPU", "3 GPUs"; nouns with another plural name it."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def how_many(number: int, state: str) -> str:
    """How many of what was just named are so: "none is free", "1 is free", "3 are free"."""
    return f"{number or 'none'} {'is' if number < 2 else 'are'} {state}"
