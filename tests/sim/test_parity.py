"""The published openb curves, from the recorded arrivals and ranks, within 0.01 points."""

import math

import pytest

from slicewise.placement import POLICIES
from slicewise.sim.replay import ReplayOptions, replay

RUNS = [("default", 42), ("gpuspec25", 43)]


def furthest(curve, published):
    pairs = [(a, b) for a, b in zip(curve, published, strict=True) if not math.isnan(b)]
    assert len(pairs) > 120
    return max(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize(
    ("policy", "trace", "seed"),
    [
        pytest.param("fgd", "default", 42),
        # The others take too long for `make test`; `make e2e` runs them.
        *(
            pytest.param(policy, trace, seed, marks=pytest.mark.cluster)
            for trace, seed in RUNS
            for policy in ("fgd", "best-fit", "dot-product", "packing", "clustering")
            if (policy, trace) != ("fgd", "default")
        ),
    ],
)
def test_allocation_equals_the_published_curve(openb, trace, seed, policy):
    listed = openb.read_trace(trace)
    arrivals = openb.read_arrivals(listed, seed)
    published = openb.read_published("alloc")[trace, policy, seed]

    record = replay(listed, arrivals, POLICIES[policy], ReplayOptions(fragmentation=False))

    assert furthest(record.allocation_curve(), published) <= 0.01


def test_fragmentation_equals_the_published_curve(openb):
    listed = openb.read_trace("default")
    arrivals = openb.read_arrivals(listed, 43)
    published = openb.read_published("frag")["default", "best-fit", 43]

    record = replay(listed, arrivals, POLICIES["best-fit"])

    assert furthest(record.fragmentation_curve(), published) <= 0.01
