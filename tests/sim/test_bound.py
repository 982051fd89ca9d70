import pytest

import builders
from slicewise.model import Constraints
from slicewise.sim.bound import bound
from slicewise.sim.trace import Trace, TracePod


def trace(*requests, nodes=None):
    return Trace(
        "t",
        nodes or (builders.node(gpus=8),),
        tuple(TracePod(f"p{at}", request) for at, request in enumerate(requests)),
    )


@pytest.mark.parametrize(
    ("sizes", "lossless", "most"),
    [
        pytest.param([50], 100, 100, id="two-halves-fill-a-gpu"),
        pytest.param([60], 60, 60, id="two-of-60-never-share-a-gpu"),
        pytest.param([100, 100], 100, 100, id="whole-gpus"),
        pytest.param([60, 40], 100, 100, id="60-and-40-share-a-gpu"),
        pytest.param([81, 81, 19], 90.5, 81 + 19 * 100 / 181, id="a-gap-needs-its-filler"),
    ],
)
def test_bounds_of_small_mixes(sizes, lossless, most):
    bounds = bound(trace(*(builders.fraction(size, 0) for size in sizes)))

    assert bounds.lossless == pytest.approx(lossless, abs=0.001)
    assert bounds.most == pytest.approx(most, abs=0.001)


def test_refusing_the_wasteful_pods_can_allocate_more_than_taking_all():
    bounds = bound(trace(builders.fraction(60, 0), builders.whole()))

    assert bounds.lossless == pytest.approx(80.0, abs=0.001)
    assert bounds.most == pytest.approx(100 - 0.4 * 37.5, abs=0.001)


def test_demand_for_a_scarce_model_bounds_the_lossless_load():
    nodes = (
        builders.node("a", gpus=3, model="A100"),
        builders.node("t", gpus=1, model="T4"),
    )
    only_t4 = builders.request([builders.share(100)], constraints=Constraints(models=("t4",)))

    bounds = bound(trace(only_t4, builders.whole(), nodes=nodes))

    assert bounds.lossless == pytest.approx(50.0, abs=0.001)
    assert bounds.most == pytest.approx(75.0, abs=0.001)


def test_trace_without_gpus_has_no_bound():
    assert bound(trace(builders.request())).most == 0.0


@pytest.mark.parametrize(
    ("name", "lossless", "most"),
    [
        ("default", 96.32, 96.90),
        ("gpushare60", 92.41, 93.35),
        ("multigpu40", 97.59, 98.00),
        ("gpuspec20", 96.32, 96.90),
    ],
)
def test_bounds_of_openb_traces(openb, name, lossless, most):
    bounds = bound(openb.read_trace(name))

    assert bounds.lossless == pytest.approx(lossless, abs=0.006)
    assert bounds.most == pytest.approx(most, abs=0.006)
