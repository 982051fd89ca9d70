import pytest

import builders
from slicewise.model import TraceError
from slicewise.sim.draw import MEASURED, WARM_UP, cut_arrivals, draw_arrivals, draw_visits
from slicewise.sim.trace import Trace, TracePod


def trace(pods=40, nodes=10):
    return Trace(
        "t",
        tuple(builders.node(f"n{at:02}", gpus=8) for at in range(nodes)),
        tuple(
            TracePod(f"p{at:02}", builders.whole(2) if at % 4 else builders.fraction(30))
            for at in range(pods)
        ),
    )


def arrived(of, arrivals):
    return sum(of.demands[pod] for pod in arrivals.order)


def test_same_seed_draws_the_same_arrivals():
    assert draw_arrivals(trace(), 7) == draw_arrivals(trace(), 7)
    assert draw_arrivals(trace(), 7) != draw_arrivals(trace(), 8)


def test_short_list_is_drawn_from_until_the_load_is_reached():
    of = trace()
    arrivals = draw_arrivals(of, 7, load=130)

    assert sorted(arrivals.order[:40]) == list(range(40))
    assert 128 * of.capacity <= 100 * arrived(of, arrivals) <= 132 * of.capacity


def test_long_list_is_cut_to_the_load():
    of = trace(pods=400)
    arrivals = draw_arrivals(of, 7, load=130)

    assert len(set(arrivals.order)) == len(arrivals.order)
    assert 127 * of.capacity <= 100 * arrived(of, arrivals) <= 130 * of.capacity


def test_ranks_are_a_permutation_of_the_nodes():
    of = trace()

    assert sorted(draw_arrivals(of, 7).ranks.values()) == list(range(10))


def test_cut_arrivals_stop_before_the_load_is_passed():
    of = trace()
    cut = cut_arrivals(of, draw_arrivals(of, 7), 50)

    assert 45 * of.capacity <= 100 * arrived(of, cut) <= 50 * of.capacity


def test_visits_offer_the_wanted_load():
    of = trace(nodes=200)
    visits = draw_visits(of, 7, 0.9)
    offered = sum(
        of.demands[pod] * stay for pod, stay in zip(visits.order, visits.stays, strict=True)
    )

    assert offered / (WARM_UP + MEASURED) == pytest.approx(0.9 * of.capacity, rel=0.05)
    assert list(visits.times) == sorted(visits.times)


def test_trace_without_gpu_pods_cannot_offer_a_load():
    of = Trace("t", (builders.node(),), (TracePod("p", builders.request()),))

    with pytest.raises(TraceError, match="no pod asks for a GPU"):
        draw_visits(of, 7, 0.9)
