"""The default policy avoids moves that would be missed later."""

from random import Random

import pytest

import builders
from slicewise.model import WHOLE_GPU, NodeState
from slicewise.placement import (
    POLICIES,
    NodeTables,
    PlacementRequest,
    Planner,
    PodShape,
    Workload,
)

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-40GB"


def place(states, request, *kinds, order=None):
    planner = Planner(POLICIES["default"], Workload.of(kinds), order)
    return planner.place(builders.snapshot(*states), PlacementRequest(request)).allocation


def busy(name, *charges, gpus=2, **facts):
    state = NodeState.empty(builders.node(name, gpus=gpus, **facts))
    return state.hold(builders.holding(f"on-{name}", *charges))


def test_share_goes_where_its_partner_waits():
    lonely = busy("b", builders.piece(0, 60, 0), gpus=1)
    empty = builders.node("a", gpus=1)

    chosen = place(
        [empty, lonely], builders.fraction(40, 0), PodShape(0, 60, 1), PodShape(0, 40, 1)
    )

    assert chosen.node == "b"


def test_share_leaves_a_leftover_alone_that_another_size_needs():
    # 50 and 50 make a GPU; 40 in the half would waste 10 that nobody asks for.
    half = busy("a", builders.piece(0, 50, 0), gpus=1)
    fit = busy("b", builders.piece(0, 60, 0), gpus=1)
    kinds = [PodShape(0, 50, 1)] * 8 + [PodShape(0, 40, 1), PodShape(0, 60, 1)] * 3

    assert place([half, fit], builders.fraction(40, 0), *kinds).node == "b"


def test_share_spares_the_only_model_that_others_insist_on():
    few, many = builders.node("a", model=A100), builders.node("b", model=T4, gpus=4)
    kinds = [PodShape(0, 100, 1, models=("a100",)), PodShape(0, 100, 1)]

    assert place([few, many], builders.whole(1), *kinds).node == "b"


def test_share_spares_the_only_gpus_large_enough_for_others():
    large = builders.node("a", memory=81920, gpus=2)
    small = builders.node("b", memory=16384, gpus=4)
    kinds = [PodShape(0, 50, 1, 40000), PodShape(0, 50, 1, 8000)]

    assert place([large, small], builders.fraction(50, 8000), *kinds).node == "b"


def test_single_gpu_spares_a_node_that_is_whole_for_eight():
    whole = builders.node("a", gpus=8)
    broken = busy("b", builders.piece(0, 100, 40960), gpus=8)
    kinds = [PodShape(0, 100, 8), PodShape(0, 100, 1)]

    assert place([whole, broken], builders.whole(1), *kinds).node == "b"


def test_cpu_heavy_pod_avoids_the_node_whose_gpus_it_would_strand():
    poor = builders.node("a", gpus=4, host=builders.host(16000))
    rich = builders.node("b", gpus=4, host=builders.host(64000))
    request = builders.request([WHOLE_GPU], host=builders.host(12000))

    assert place([poor, rich], request, PodShape(4000, 100, 1)).node == "b"


def test_gpu_whose_memory_is_gone_is_preferred_for_compute_alone():
    gpus = [builders.gpu(0), builders.gpu(1)]
    state = busy("a", builders.piece(1, 10, 40000), gpus=gpus)
    kinds = [PodShape(0, 40, 1, 20000), PodShape(0, 40, 1, 100)]

    assert place([state], builders.fraction(40, 100), *kinds).gpus == (1,)


def test_nothing_known_packs_open_gpus_first():
    state = busy("a", builders.piece(1, 30, 100), gpus=2)

    assert place([state], builders.fraction(30, 100)).gpus == (1,)


def test_equal_nodes_are_taken_in_the_given_order():
    states = [builders.node(f"n{at}") for at in range(4)]

    forward = place(states, builders.whole(1), order={f"n{at}": at for at in range(4)})
    backward = place(states, builders.whole(1), order={f"n{at}": 3 - at for at in range(4)})

    assert (forward.node, backward.node) == ("n0", "n3")


def test_cpu_keeps_large_pieces_where_the_cluster_is_short_of_it():
    whole = builders.node("a", gpus=2, host=builders.host(16000))
    pieces = builders.node("b", gpus=2, host=builders.host(9000))
    # Half of the demand needs 8 CPUs at once: on the first node they are left after this pod.
    kinds = [PodShape(8000, 100, 1), PodShape(2000, 100, 1), PodShape(20000)]
    request = builders.request([builders.share(30)], host=builders.host(4000))

    assert place([whole, pieces], request, *kinds).node == "a"


def test_balance_of_cpu_opens_no_node_before_anybody_asked_for_a_whole_one():
    rich = busy("a", builders.piece(0, 50, 0), gpus=8, host=builders.host(128000))
    poor = builders.node("b", gpus=8, host=builders.host(64000))
    lean = builders.request([WHOLE_GPU], host=builders.host(1000))
    parts = 30 * [PodShape(1000, 50, 1), PodShape(8000, 50, 1)]

    assert place([rich, poor], lean, *parts).node == "a"
    assert place([rich, poor], lean, *parts, PodShape(64000, 100, 8)).node == "b"


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((), id="unknown"),
        pytest.param((PodShape(1000, 50, 1, 8000), PodShape(500, 30, 1)), id="shares"),
        pytest.param((PodShape(0, 100, 4), PodShape(0, 40, 1)), id="blocks"),
        pytest.param((PodShape(0, 50, 1, 70000), PodShape(0, 40, 1, 8000)), id="rare"),
    ],
)
def test_prices_kept_between_decisions_change_none(kinds):
    chance = Random(5)
    workload, tables = Workload.of(kinds), NodeTables()
    states = {
        f"n{at}": NodeState.empty(builders.node(f"n{at}", memory=81920 if at == 7 else 40960))
        for at in range(8)
    }
    snapshot = builders.snapshot(*states.values())
    kept = Planner(POLICIES["default"], workload, tables=tables)
    for at in range(60):
        share = builders.share(chance.choice((10, 30, 50)), chance.choice((0, 8000)))
        wanted = PlacementRequest(builders.request([share] * chance.choice((1, 1, 2))))

        decided = kept.decide(snapshot, wanted)
        afresh = Planner(POLICIES["default"], workload).decide(snapshot, wanted)

        assert decided.placement == afresh.placement
        assert decided.scores == afresh.scores
        if decided.placement is None:
            break
        allocation = decided.placement.allocation
        charges = [piece for each in allocation.containers for piece in each.slices]
        held = builders.holding(f"p{at}", *charges)
        snapshot = snapshot.hold(allocation.node, held)
