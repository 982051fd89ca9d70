"""Workloads that change: pods of one kind arrive, then pods of another.

A drift is a sequence of phases over the pods of one trace; each brings pods of one kind until so
much of the cluster has been asked for. What is known beforehand, if anything, is the mix of all
pods that arrive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final

from slicewise.model import FULL, TraceError
from slicewise.placement import PodShape, shape_of
from slicewise.sim.draw import draw_ranks
from slicewise.sim.trace import ArrivalOrder, Trace

_HALF: Final = FULL // 2
# Milli-CPU per GPU: what the mean GPU of the openb cluster has beside it, and half of that.
_HEAVY: Final = 17_000
_LEAN: Final = 8_500

KINDS: Final[Mapping[str, Callable[[PodShape], bool]]] = MappingProxyType(
    {
        "all": lambda shape: shape.demand >= 0,
        "small": lambda shape: shape.demand < FULL,
        "parts": lambda shape: 0 < shape.demand < FULL,
        "low": lambda shape: 0 < shape.demand < _HALF,
        "high": lambda shape: shape.demand >= _HALF,
        "lean": lambda shape: FULL * shape.cpu < _LEAN * shape.demand,
        "heavy": lambda shape: FULL * shape.cpu >= _LEAN * shape.demand,
        "heavy-parts": lambda shape: (
            shape.demand < FULL and FULL * shape.cpu >= _HEAVY * shape.demand > 0
        ),
        "whole": lambda shape: shape.whole and shape.count > 0,
        "multi": lambda shape: shape.whole and shape.count > 1,
        "eights": lambda shape: shape.whole and shape.count == 8,
    }
)
"""Kinds of pods by name; `small` and `heavy` count pods without GPUs in."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Kinds of pods, each with the load in percent at which the next kind takes over."""

    phases: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        return " ".join(f"{kind}:{load}" for kind, load in self.phases)


DRIFTS: Final = (
    "small:20 eights:130",
    "small:40 eights:130",
    "eights:40 small:130",
    "small:40 eights:70 small:130",
    "parts:40 eights:130",
    "heavy-parts:20 eights:130",
    "heavy-parts:40 eights:130",
    "small:40 multi:130",
    "multi:40 small:130",
    "small:40 whole:130",
    "whole:40 small:130",
    "low:40 high:130",
    "high:40 low:130",
    "lean:40 heavy:130",
    "heavy:40 lean:130",
)
"""The drifts that are compared unless others are named."""


def read_drift(text: str) -> Drift:
    """A drift as it is written: `parts:40 eights:130`."""
    phases = []
    for word in text.split():
        kind, _, load = word.partition(":")
        if kind not in KINDS or not load.isdigit():
            raise TraceError(
                f"drift phase {word!r}: expected KIND:LOAD, KIND one of {', '.join(KINDS)}"
            )
        phases.append((kind, int(load)))
    loads = [load for _, load in phases]
    if not phases or loads != sorted(set(loads)):
        raise TraceError(f"drift {text!r}: expected phases with rising loads")
    return Drift(tuple(phases))


def draw_drift(trace: Trace, drift: Drift, seed: int) -> tuple[Trace, ArrivalOrder]:
    """The drift's pods as a trace of their own, and the order in which they arrive."""
    chance = Random(seed)
    ranks = draw_ranks(trace, chance)
    shapes = [shape_of(pod.request) for pod in trace.pods]
    order: list[int] = []
    total = 0
    for kind, load in drift.phases:
        fitting = [at for at, shape in enumerate(shapes) if KINDS[kind](shape)]
        if not any(trace.demands[at] for at in fitting):
            raise TraceError(f"trace {trace.name}: no pod of kind {kind!r} asks for a GPU")
        while 100 * total < load * trace.capacity:
            chance.shuffle(fitting)
            for at in fitting:
                if 100 * total >= load * trace.capacity:
                    break
                order.append(at)
                total += trace.demands[at]
    pods = tuple(trace.pods[at] for at in order)
    return replace(trace, pods=pods), ArrivalOrder(range(len(pods)), ranks)
