"""Which resource was probably meant by a name that no system knows.

A name is doubtful when it stands in the family of a known one: its domain is one of theirs or
nearly so, and it is about GPUs. Names that other software is known to use are never doubtful.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from slicewise.model import Pod

# What NVIDIA's plugin and operators, HAMi and Alibaba Cloud offer under the same domains.
_FOREIGN: Final = frozenset(
    (
        "aliyun.com/gpu-core.percentage", "nvidia.com/gpu.shared", "nvidia.com/gpucores",
        "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/pgpu", "nvidia.com/vgpu",
    )
)  # fmt: skip
_FOREIGN_PREFIXES: Final = ("nvidia.com/mig-",)
# Kubernetes' own resources have no domain, and so has what lost its domain.
_KUBERNETES: Final = frozenset(("cpu", "memory", "storage", "ephemeral-storage", "pods"))
_WORD: Final = re.compile(r"[a-z0-9]+")
_NEAR_DOMAIN: Final = 2
# No name that is longer could be near one of ours.
_LONGEST: Final = 64


@dataclass(frozen=True, slots=True)
class Misspelling:
    """A resource that nobody knows, and those that may have been meant, the likeliest first."""

    resource: str
    meant: tuple[str, ...]
    container: str = ""

    @property
    def text(self) -> str:
        """One sentence that names both, as errors say it."""
        where = f"container {self.container}: " if self.container else ""
        if len(self.meant) == 1:
            hint = f"probably {self.meant[0]} was meant"
        else:
            hint = f"expected one of {', '.join(self.meant)}"
        return f"{where}{self.resource} is no resource that Slicewise knows: {hint}"


class Spelling:
    """Compares names with those that are known; answers are remembered, a bounded number."""

    def __init__(self, known: Iterable[str]) -> None:
        self.known = tuple(known)
        self._exact = frozenset(self.known)
        self._split = tuple((name, *name.split("/", 1)) for name in self.known)
        self._domains = frozenset(domain for _, domain, _ in self._split)
        self._find = lru_cache(maxsize=4096)(self._compare)

    def find(self, resource: str) -> Misspelling | None:
        """What was probably meant; None for a known name, or one that is none of our business."""
        if resource in self._exact or resource in _KUBERNETES or len(resource) > _LONGEST:
            return None
        if resource in _FOREIGN or resource.startswith(_FOREIGN_PREFIXES):
            return None
        meant = self._find(resource)
        return Misspelling(resource, meant) if meant else None

    def find_in_pod(self, pod: Pod) -> tuple[Misspelling, ...]:
        """Every doubtful name in the pod, with the first container that asks for it."""
        found: dict[str, Misspelling] = {}
        for container in pod.containers:
            for resource in (*container.limits, *container.requests):
                told = None if resource in found else self.find(resource)
                if told is not None:
                    found[resource] = Misspelling(resource, told.meant, container.name)
        return tuple(found.values())

    def _compare(self, resource: str) -> tuple[str, ...]:
        domain, slash, name = resource.lower().replace("_", "-").rpartition("/")
        if not slash:
            return self._named(name)[:1]
        if domain in self._domains:
            return self._compare_inside(domain, name)
        best: tuple[int, str] | None = None
        for known, its_domain, its_name in self._split:
            apart = measure_distance(domain, its_domain)
            if apart > _NEAR_DOMAIN or not _is_near(name, its_name):
                continue
            apart += _measure(name, its_name)
            if best is None or apart < best[0]:
                best = (apart, known)
        return () if best is None else (best[1],)

    def _compare_inside(self, domain: str, name: str) -> tuple[str, ...]:
        """A name under a known domain: a near one of it, the same of another, or all it has."""
        family = [(known, its) for known, its_domain, its in self._split if its_domain == domain]
        near = [(_measure(name, its), known) for known, its in family if _is_near(name, its)]
        if near:
            return (min(near, key=lambda each: each[0])[1],)
        if same := self._named(name):
            return same[:1]
        words = {word for _, its in family for word in _WORD.findall(its)}
        if words.isdisjoint(_WORD.findall(name)):
            return ()
        return tuple(known for known, _ in family)

    def _named(self, name: str) -> tuple[str, ...]:
        return tuple(known for known, _, its in self._split if its == name)


def measure_distance(one: str, other: str) -> int:
    """How many letters must be put in, left out, exchanged or swapped to make one the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, last, row = row, before, [at]
        for to, wanted in enumerate(other, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != wanted))
            swapped = at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted
            row.append(min(cost, last[to - 2] + 1) if swapped else cost)
    return row[-1]


def _measure(name: str, known: str) -> int:
    """The distance of two names under one domain; a cut last word counts as one letter."""
    short, long = sorted((name, known), key=len)
    cut = long.startswith(short) and long[len(short) :].isalpha() and len(short) > 1
    return 1 if cut and short != long else measure_distance(name, known)


def _is_near(name: str, known: str) -> bool:
    """Whether one may be the other misspelt: one letter in four may be wrong."""
    return _measure(name, known) <= max(1, len(known) // 4)
