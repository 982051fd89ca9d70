"""Policies: weighed scoring functions for nodes and for GPUs, by name.

Some functions judge node and GPU together: for a share of a GPU, the node's score is then
that of the GPU chosen on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slicewise.model import PolicyError
from slicewise.model.bounds import MAX_POLICY_LETTERS, MAX_POLICY_TERMS
from slicewise.placement.scoring import fgd, price_policy, scores
from slicewise.placement.scoring.scoring_input import ScoringInput
from slicewise.placement.tables import Floats

Score = Callable[[ScoringInput], Floats]
Weights = tuple[tuple[str, float], ...]

NODE_SCORES: Final[Mapping[str, Score]] = MappingProxyType(
    {
        "binpack": scores.binpack,
        "spread": scores.spread,
        "best-fit": scores.best_fit,
        "dot-product": scores.dot_product,
        "packing": scores.packing,
        "clustering": scores.clustering,
        "random": scores.random,
        "load": scores.load,
        "fgd": fgd.fgd,
        "price": price_policy.price,
    }
)
GPU_SCORES: Final[Mapping[str, Score]] = MappingProxyType(
    {
        "binpack": scores.tight_gpu,
        "best-fit": scores.tight_gpu,
        "spread": scores.loose_gpu,
        "random": scores.random_gpu,
        "load": scores.load_gpu,
        "fgd": fgd.fgd_gpu,
        "price": price_policy.price_gpu,
    }
)
JOINT: Final = frozenset({"fgd", "price"})


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose: weights of node scores, weights of GPU scores, and a seed for chance."""

    name: str
    node: Weights
    gpu: Weights
    seed: int = 0

    def __post_init__(self) -> None:
        for known, weights in ((NODE_SCORES, self.node), (GPU_SCORES, self.gpu)):
            if len(weights) > MAX_POLICY_TERMS:
                raise PolicyError(
                    f"policy of {len(weights)} terms: expected at most {MAX_POLICY_TERMS}"
                )
            terms = [term for term, _ in weights]
            if len(set(terms)) < len(terms):
                twice = next(term for term in terms if terms.count(term) > 1)
                raise PolicyError(f"policy {twice!r} is named twice: expected each once")
            for term, weight in weights:
                if term not in known:
                    raise PolicyError(f"policy {term!r}: expected one of {', '.join(known)}")
                if not 0 < weight < 1e6:
                    raise PolicyError(f"weight {weight} of {term!r}: expected above 0")


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("default", (("price", 1.0),), (("price", 1.0),)),
            Policy("binpack", (("binpack", 1.0),), (("binpack", 1.0),)),
            Policy("spread", (("spread", 1.0),), (("spread", 1.0),)),
            Policy("best-fit", (("best-fit", 1.0),), (("best-fit", 1.0),)),
            Policy("dot-product", (("dot-product", 1.0),), (("best-fit", 1.0),)),
            Policy("packing", (("packing", 1.0),), (("best-fit", 1.0),)),
            Policy("clustering", (("clustering", 1.0),), (("best-fit", 1.0),)),
            Policy("random", (("random", 1.0),), (("random", 1.0),)),
            Policy("load", (("load", 1.0),), (("load", 1.0),)),
            Policy("fgd", (("fgd", 1.0),), (("fgd", 1.0),)),
        )
    }
)


def read_policy(text: str, seed: int = 0) -> Policy:
    """A policy by name, or composed: `node=fgd:2,load:1 gpu=best-fit`."""
    if len(text) > MAX_POLICY_LETTERS:
        raise PolicyError(f"policy of {len(text)} letters: expected at most {MAX_POLICY_LETTERS}")
    if text in POLICIES:
        known = POLICIES[text]
        return Policy(known.name, known.node, known.gpu, seed)
    if "=" not in text:
        raise PolicyError(f"policy {text!r}: expected one of {', '.join(POLICIES)}")
    parts = dict(_read_part(text, part) for part in text.split())
    node = parts.pop("node", (("binpack", 1.0),))
    gpu = parts.pop("gpu", tuple((term, weight) for term, weight in node if term in GPU_SCORES))
    if parts:
        raise PolicyError(f"policy {text!r}: unknown part {next(iter(parts))!r}")
    return Policy(text, node, gpu or (("best-fit", 1.0),), seed)


def _read_part(text: str, part: str) -> tuple[str, Weights]:
    level, _, terms = part.partition("=")
    weights = []
    for term in terms.split(","):
        name, _, weight = term.partition(":")
        try:
            weights.append((name, float(weight or 1)))
        except ValueError as error:
            raise PolicyError(
                f"policy {text!r}: weight {weight!r} of {name!r}: expected a number"
            ) from error
    return level, tuple(weights)
