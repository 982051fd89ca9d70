"""What an agent publishes of its GPUs on the Node, as values.

A label's value has at most 63 letters, digits, dots, dashes and underscores, whatever a GPU
is called and however many models a node mixes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from slicewise.dialects.shared.injection import NOTHING
from slicewise.model import Gpu, Node

_LONGEST: Final = 63
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_ENDS: Final = "._-"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node's GPUs with their health as judged, and what only some systems publish of them."""

    node: Node
    capabilities: tuple[int, ...] = ()
    """Compute capability of each GPU, 86 for 8.6, in the order of the node's GPUs."""
    driver: str = ""
    cuda: str = ""
    troubles: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Why each unhealthy GPU is unhealthy, by UUID."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Labels and annotations for a Node; fallback labels give way to anybody else's."""

    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    fallback_labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)


def join_publications(parts: Sequence[Publication]) -> Publication:
    """All of them as one; of two values for one key the last counts."""
    return Publication(
        {key: value for part in parts for key, value in part.labels.items()},
        {key: value for part in parts for key, value in part.annotations.items()},
        {key: value for part in parts for key, value in part.fallback_labels.items()},
    )


def write_label(text: str) -> str:
    """The text as a label's value, as near as the rules allow; empty when nothing is left."""
    return _ILLEGAL.sub("-", text).strip(_ENDS)[:_LONGEST].strip(_ENDS)


def one_model(gpus: Sequence[Gpu]) -> str | None:
    """The model that all of them are, as a label's value; None when they differ."""
    models = {gpu.model for gpu in gpus}
    return (write_label(models.pop()) or None) if len(models) == 1 else None


def one_memory(gpus: Sequence[Gpu]) -> int | None:
    """The MiB that each of them has; None when they differ."""
    sizes = {gpu.memory for gpu in gpus}
    return sizes.pop() if len(sizes) == 1 else None


def publish_nothing(facts: NodeFacts, editions: frozenset[str]) -> Publication:
    """For systems that read nothing of a Node but the amounts that the kubelet reports."""
    return Publication()
