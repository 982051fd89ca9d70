"""Which GPUs of a node stand nearest each other: NVLink first, then PCIe, then NUMA."""

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

from slicewise.model import Nearness, Node, TopologyConstraint

_FAR: Final = 3
_ONE_BRIDGE: Final = 30
_ONE_NUMA: Final = 40
_MOST_SUBSETS: Final = 4096

Gpus = tuple[int, ...]


def nearness(node: Node, one: int, other: int) -> int:
    """How near two GPUs are, as a Nearness value, or one more when they are far apart."""
    links = node.links
    if links is not None:
        if links.nvlinks[one][other] > 0:
            return Nearness.NVLINK
        if links.pcie[one][other] <= _ONE_BRIDGE:
            return Nearness.PCIE
        if links.pcie[one][other] <= _ONE_NUMA:
            return Nearness.NUMA
    numa = node.gpus[one].numa
    if numa is not None and numa == node.gpus[other].numa:
        return Nearness.NUMA
    return _FAR


@lru_cache(maxsize=16384)
def nearest(node: Node, free: Gpus, count: int, topology: TopologyConstraint | None) -> Gpus | None:
    """The best `count` of the free positions, or None if a strict topology cannot be met.

    The worst pair decides, then the sum of all pairs, then how few near GPUs are left alone,
    then the lowest positions. One GPU is taken where it breaks the fewest near pairs.
    """
    if len(free) < count:
        return None
    strict = topology is not None and topology.strict and count > 1
    if node.links is None and all(gpu.numa is None for gpu in node.gpus):
        return None if strict else free[:count]
    best = min(
        _subsets(node, free, count),
        key=lambda subset: (*_spread(node, subset), _left_alone(node, free, subset), subset),
    )
    if topology is not None and strict and _spread(node, best)[0] > topology.nearness:
        return None
    return best


def quality(node: Node, subset: Gpus) -> float:
    """How good a set of GPUs is, 0 to 100: 100 when NVLink joins every pair."""
    worst, _ = _spread(node, subset)
    return 100.0 * (_FAR - worst) / _FAR


def _subsets(node: Node, free: Gpus, count: int) -> list[Gpus]:
    if comb(len(free), count) <= _MOST_SUBSETS:
        return list(combinations(free, count))
    return [_grown(node, free, count, seed) for seed in free]


def _grown(node: Node, free: Gpus, count: int, seed: int) -> Gpus:
    """A set grown from one GPU by always adding the nearest; for nodes with very many GPUs."""
    chosen = [seed]
    while len(chosen) < count:
        rest = [at for at in free if at not in chosen]
        chosen.append(min(rest, key=lambda at: (*_spread(node, (*chosen, at)), at)))
    return tuple(sorted(chosen))


def _spread(node: Node, subset: Gpus) -> tuple[int, int]:
    """Nearness of the worst pair, and the total distance of all pairs."""
    worst = total = 0
    for one, other in combinations(subset, 2):
        near = nearness(node, one, other)
        worst = max(worst, near)
        total += near * 1000
        if node.links is not None:
            total += node.links.pcie[one][other] - 10 * node.links.nvlinks[one][other]
    return worst, total


def _left_alone(node: Node, free: Gpus, subset: Gpus) -> int:
    """How much nearness the choice takes from the GPUs that stay free.

    Several GPUs are judged by the group they come from: the fewer free GPUs it has beside
    them, the better.
    """
    rest = [at for at in free if at not in subset]
    if len(subset) == 1:
        return sum(_FAR - nearness(node, subset[0], at) for at in rest)
    level, _ = _spread(node, subset)
    widest = _widest(node, subset)
    return sum(
        any(
            nearness(node, one, at) <= level and _widest(node, (one, at)) <= widest
            for one in subset
        )
        for at in rest
    )


def _widest(node: Node, subset: Gpus) -> int:
    if node.links is None:
        return 0
    return max(node.links.pcie[one][other] for one, other in combinations(subset, 2))
