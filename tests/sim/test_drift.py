"""Mixes that change on the way: the default policy against the simple ones."""

import pytest

from slicewise.model import TraceError
from slicewise.placement import read_policy, shape_of
from slicewise.sim.draw import draw_arrivals
from slicewise.sim.drift import DRIFTS, draw_drift, read_drift
from slicewise.sim.replay import ReplayOptions, replay


def allocated(trace, drift, policy, *, learn):
    """Percent of GPUs allocated at the end."""
    changed, arrivals = draw_drift(trace, read_drift(drift), 42)
    options = ReplayOptions(learn=learn, fragmentation=False)
    record = replay(changed, arrivals, read_policy(policy, 42), options)
    return 100.0 * record.allocated[-1] / record.capacity


def test_phases_follow_each_other_at_their_loads(openb):
    trace = openb.read_trace("multigpu20")

    changed, arrivals = draw_drift(trace, read_drift("small:40 eights:60"), 1)

    pods = [changed.pods[at] for at in arrivals.order]
    counts = [shape_of(pod.request).count for pod in pods]
    first = counts.index(8)
    assert max(counts[:first]) == 1
    assert set(counts[first:]) == {8}
    before = sum(shape_of(pod.request).demand for pod in pods[:first])
    assert 40.0 <= 100.0 * before / trace.capacity < 40.1


@pytest.mark.parametrize("text", ["", "small", "odd:40", "small:40 eights:40", "small:60 whole:40"])
def test_drift_that_cannot_be_is_refused(text):
    with pytest.raises(TraceError, match="drift"):
        read_drift(text)


def test_every_listed_drift_can_be_read():
    assert [read_drift(text).name for text in DRIFTS] == list(DRIFTS)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "drift",
    [
        "small:40 eights:130",
        "heavy-parts:20 eights:130",
        "small:40 multi:130",
        "low:40 high:130",
        "high:40 low:130",
    ],
)
def test_default_policy_is_not_below_the_simple_ones_when_the_mix_changes(openb, drift):
    trace = openb.read_trace("default")
    simple = [allocated(trace, drift, policy, learn=False) for policy in ("best-fit", "binpack")]

    for learn in (False, True):
        own, fgd = (allocated(trace, drift, policy, learn=learn) for policy in ("default", "fgd"))

        assert own >= max(fgd, *simple) - 0.5, f"learn={learn}"


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["cpu235", "cpu300"])
def test_default_policy_is_not_below_fgd_where_cpu_is_short(openb, name):
    trace = openb.read_trace(name)
    arrivals = openb.read_arrivals(trace, 42) or draw_arrivals(trace, 42)

    ends = [
        replay(trace, arrivals, read_policy(policy, 42), ReplayOptions(fragmentation=False))
        for policy in ("default", "fgd")
    ]

    own, fgd = (100.0 * record.allocated[-1] / record.capacity for record in ends)
    assert own >= fgd - 0.05
