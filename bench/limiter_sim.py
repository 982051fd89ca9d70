"""How near shares come on a simulated clock: the limiter's own code, and what others pace by.

The model is in `slicewise_testbed.pacing`. Every figure is a mean over three seeds of 70 simulated
seconds, of which the first ten are dropped.
"""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Final

from slicewise_testbed.pacing import (
    SEVERAL,
    SOFT,
    TARGETS,
    SimulatedGpu,
    measure_errors,
    measure_model,
    measure_shares,
)

_MODELS: Final[Mapping[str, SimulatedGpu]] = {
    "model": SimulatedGpu(),
    "latency_2": SimulatedGpu(latency_ns=(2_000, 2_000)),
    "latency_12": SimulatedGpu(latency_ns=(12_000, 12_000)),
    "slice_6": SimulatedGpu(slice_ns=6_000_000),
    "switch_0": SimulatedGpu(switch_ns=0),
    "switch_100": SimulatedGpu(switch_ns=100_000),
}


def measure_limiter_sim() -> Iterator[tuple[str, float]]:
    """Relative errors of one container alone, then percent that several had at once."""
    for name, way, agent in (
        ("library", "library", True),
        ("no_agent", "library", False),
        ("vcuda", "vcuda", False),
        ("hami", "hami", False),
        ("delta", "delta", False),
        ("aimd", "aimd", False),
    ):
        for target in TARGETS:
            for metric, value in measure_errors(target, way, agent=agent):
                yield f"{name}.{target}.{metric}", value
    for name, gpu in _MODELS.items():
        errors = list(measure_model(gpu))
        yield f"{name}.mean_error", fmean(errors)
        yield f"{name}.worst_error", max(errors)
    for case, loads in {**SEVERAL, **SOFT}.items():
        ways = ("library", "vcuda", "none" if case in SOFT else "aimd")
        for way in ways:
            for at, share in enumerate(measure_shares(loads, way)):
                yield f"{case}.{way}.{at}", share
