"""Which GPUs of a node stand nearest each other: NVLink first, then PCIe, then NUMA."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slicewise.model import Links, Nearness, Node, TopologyConstraint

_FAR: Final = 3
_ONE_BRIDGE: Final = 30
_ONE_NUMA: Final = 40
_MOST_SUBSETS: Final = 4096

Gpus = tuple[int, ...]
Masks = NDArray[np.uint64]
Numbers = NDArray[np.int64]


def nearest(node: Node, free: Gpus, count: int, topology: TopologyConstraint | None) -> Gpus | None:
    """The best `count` of the free positions, or None if a strict topology cannot be met.

    The worst pair decides, then the sum of all pairs, then how few near GPUs are left alone,
    then the lowest positions. One GPU is taken where it breaks the fewest near pairs.
    """
    return nearest_of_all(node, [free], count, topology)[0]


def nearest_of_all(
    node: Node, frees: Sequence[Gpus], count: int, topology: TopologyConstraint | None
) -> list[Gpus | None]:
    """The same for several sets of free positions on nodes of one class."""
    strict = topology is not None and topology.strict and count > 1
    numa = tuple(gpu.numa for gpu in node.gpus)
    if node.links is None and all(each is None for each in numa):
        return [None if strict or len(free) < count else free[:count] for free in frees]
    distances = _distances(node.links, numa)
    found: list[Gpus | None] = [None] * len(frees)
    able = [at for at, free in enumerate(frees) if len(free) >= count]
    if is_listed(node, count):
        table = _listed(distances, count)
        chosen = table.choose([frees[at] for at in able]) if able else []
        for at, (worst, subset) in zip(able, chosen, strict=True):
            found[at] = subset if _near_enough(worst, topology, strict=strict) else None
        return found
    for at in able:
        worst, subset = _search(distances, frees[at], count)
        found[at] = subset if _near_enough(worst, topology, strict=strict) else None
    return found


def is_listed(node: Node, count: int) -> bool:
    """Whether a node has so few sets of so many GPUs that all are listed once and for all."""
    return comb(len(node.gpus), count) <= _MOST_SUBSETS


def quality(node: Node, subset: Gpus) -> float:
    """How good a set of GPUs is, 0 to 100: 100 when NVLink joins every pair."""
    near = _distances(node.links, tuple(gpu.numa for gpu in node.gpus)).near
    worst = max((int(near[one, other]) for one, other in combinations(subset, 2)), default=0)
    return 100.0 * (_FAR - worst) / _FAR


def _near_enough(worst: int, topology: TopologyConstraint | None, *, strict: bool) -> bool:
    return topology is None or not strict or worst <= topology.nearness


class _Distances:
    """How far every two GPUs of a kind of node are apart; compared by identity."""

    def __init__(self, links: Links | None, numa: Sequence[int | None]) -> None:
        size = len(numa)
        homes = np.array([-1 - at if home is None else home for at, home in enumerate(numa)])
        self.near: Numbers = np.where(homes[:, None] == homes[None, :], Nearness.NUMA, _FAR)
        self.width: Numbers = np.zeros((size, size), dtype=np.int64)
        self.cost: Numbers = 1000 * self.near
        if links is not None and size:
            nvlinks = np.array(links.nvlinks, dtype=np.int64)
            self.width = np.array(links.pcie, dtype=np.int64)
            self.near = np.where(self.width <= _ONE_NUMA, Nearness.NUMA, self.near)
            self.near = np.where(self.width <= _ONE_BRIDGE, Nearness.PCIE, self.near)
            self.near = np.where(nvlinks > 0, Nearness.NVLINK, self.near)
            self.cost = 1000 * self.near + self.width - 10 * nvlinks


@lru_cache(maxsize=64)
def _distances(links: Links | None, numa: tuple[int | None, ...]) -> _Distances:
    return _Distances(links, numa)


class _Table:
    """Sets of GPUs with all that decides between them beside what else is free."""

    def __init__(self, distances: _Distances, subsets: Numbers) -> None:
        count, near = subsets.shape[1], distances.near
        one, other = np.triu_indices(count, 1)
        first, second = subsets[:, one], subsets[:, other]
        self._subsets = subsets
        self._worst = near[first, second].max(axis=1, initial=0)
        cost = distances.cost[first, second].sum(axis=1)
        widest = distances.width[first, second].max(axis=1, initial=0)
        self._rank = np.unique(np.stack([self._worst, cost], axis=1), axis=0, return_inverse=True)[
            1
        ]
        self._rank = self._rank.reshape(-1).astype(np.int64)
        self._inside = _masks(subsets)
        links = near[subsets] <= self._worst[:, None, None]
        links &= distances.width[subsets] <= widest[:, None, None]
        self._beside = _pack(links.any(axis=1))
        # What one GPU takes from each of the others that stays free.
        self._single = _FAR - near[subsets[:, 0]] if count == 1 else None

    def choose(self, frees: Sequence[Gpus]) -> list[tuple[int, Gpus]]:
        """For each of these free positions the best set, and the nearness of its worst pair."""
        masks = np.array([sum(1 << at for at in free) for free in frees], dtype=np.uint64)[:, None]
        outside = (self._inside & ~masks) != 0
        if self._single is None:
            alone = np.bitwise_count(self._beside & masks & ~self._inside).astype(np.int64)
        else:
            size = self._single.shape[1]
            listed = np.array([[at in free for at in range(size)] for free in map(set, frees)])
            alone = listed.astype(np.int64) @ self._single.T
            alone -= self._single[np.arange(len(self._subsets)), self._subsets[:, 0]]
        keys = np.where(outside, np.iinfo(np.int64).max, (self._rank << 20) + alone)
        best = keys.argmin(axis=1).tolist()
        return [(int(self._worst[at]), tuple(self._subsets[at].tolist())) for at in best]


def _masks(subsets: Numbers) -> Masks:
    bits: Masks = (np.uint64(1) << subsets.astype(np.uint64)).sum(axis=1, dtype=np.uint64)
    return bits


def _pack(flags: NDArray[np.bool_]) -> Masks:
    weights = np.uint64(1) << np.arange(flags.shape[1], dtype=np.uint64)
    bits: Masks = np.where(flags, weights, np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return bits


@lru_cache(maxsize=256)
def _listed(distances: _Distances, count: int) -> _Table:
    return _Table(distances, _all_subsets(tuple(range(len(distances.near))), count))


@lru_cache(maxsize=4096)
def _search(distances: _Distances, free: Gpus, count: int) -> tuple[int, Gpus]:
    """The best set of very many GPUs: of all sets if few are free, else of those grown."""
    if comb(len(free), count) <= _MOST_SUBSETS:
        return _Table(distances, _all_subsets(free, count)).choose([free])[0]
    return _Table(distances, _grow(distances, free, count)).choose([free])[0]


def _all_subsets(gpus: Gpus, count: int) -> Numbers:
    return np.array(list(combinations(gpus, count)), dtype=np.int64).reshape(-1, count)


def _grow(distances: _Distances, free: Gpus, count: int) -> Numbers:
    """Sets grown from each GPU by always adding the nearest; for nodes with very many GPUs."""
    near = distances.near[np.ix_(free, free)]
    cost = distances.cost[np.ix_(free, free)]
    seeds = np.arange(len(free))
    chosen = np.eye(len(free), dtype=np.bool_)
    # Of each set grown so far: the worst pair and all pairs, with each GPU added.
    worst, total = near.copy(), cost.copy()
    for _ in range(count - 1):
        keys = np.where(chosen, np.iinfo(np.int64).max, (worst << 40) + total)
        added = keys.argmin(axis=1)
        chosen[seeds, added] = True
        worst = np.maximum(np.maximum(worst, worst[seeds, added][:, None]), near[added])
        total = total + cost[added]
    return np.array([np.array(free)[row] for row in chosen], dtype=np.int64)
