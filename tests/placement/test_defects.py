"""Defects of the replaced systems in placing, each shown absent here."""

import builders
from slicewise.model import (
    WHOLE_GPU,
    Constraints,
    ContainerRequest,
    NodeState,
    Reason,
    Role,
    charge,
)
from slicewise.placement import POLICIES, PlacementRequest, Planner, evict


def decide(state, request):
    return Planner(POLICIES["binpack"]).decide(builders.snapshot(state), PlacementRequest(request))


def busy(*charges, **facts):
    node = builders.node(**facts)
    return NodeState.empty(node).hold(builders.holding("held", *charges))


def test_defect_tkestack_4_containers_of_one_pod_are_charged_to_each_other():
    request = builders.request([builders.share(60, 1)], [builders.share(60, 1)])

    placement = decide(busy(gpus=2), request).placement

    assert len(placement.allocation.gpus) == 2


def test_defect_tkestack_6_unequal_gpus_keep_their_own_sizes():
    gpus = [builders.gpu(0, memory=8192), builders.gpu(1, memory=81920)]
    state = NodeState.empty(builders.node(gpus=gpus))

    placement = decide(state, builders.fraction(10, 40000)).placement

    assert placement.allocation.gpus == (1,)


def test_defect_tkestack_9_refusal_says_how_much_is_missing():
    state = busy(builders.piece(0, 90, 40000), gpus=1)

    (refusal,) = decide(state, builders.fraction(30, 8192)).refusals.values()

    assert "needs 8192 MiB on one GPU, most free is 960 MiB on gpu 0" in str(refusal)


def test_defect_tkestack_12_init_container_counts():
    request = builders.request(ContainerRequest("init", (WHOLE_GPU,), Role.INIT))

    assert decide(busy(builders.piece(0, 1, 1), gpus=1), request).placement is None


def test_defect_gpushare_1_overfull_gpu_does_not_look_empty():
    state = busy(builders.piece(0, 0, 90000), gpus=1)

    assert decide(state, builders.request([builders.share(0, 1)])).placement is None


def test_defect_gpushare_16_what_no_eviction_can_mend_is_told_apart():
    never = decide(busy(gpus=1), builders.fraction(1, 99999)).refusals["n0"]
    now = decide(busy(builders.piece(0, 0, 40960), gpus=1), builders.fraction(1, 9)).refusals["n0"]

    assert (never.reason, never.reason.preemptible) == (Reason.TOO_SMALL, False)
    assert (now.reason, now.reason.preemptible) == (Reason.MEMORY, True)


def test_defect_elastic_s13_search_is_bounded():
    pieces = [builders.piece(gpu, 55, 0) for gpu in range(8)]
    request = builders.request(*([builders.share(46, 1)] for _ in range(9)))

    decision = decide(busy(*pieces, gpus=8), request)

    assert decision.placement is None
    assert decision.refusals["n0"].detail


def test_defect_elastic_s14_request_beyond_one_gpu_is_told_so():
    (refusal,) = decide(
        busy(gpus=2), builders.request([builders.share(0, 50000)])
    ).refusals.values()

    assert "needs 50000 MiB, largest GPU has 100 percent and 40960 MiB" in refusal.detail


def test_defect_elastic_s2_node_is_scored_without_an_earlier_filter():
    decision = decide(busy(gpus=1), builders.fraction())

    assert set(decision.scores) == {"n0"}


def test_defect_gpuscheduler_n10_gpus_of_victims_count_as_free():
    state = busy(builders.piece(0, 100, 40960), gpus=1)

    eviction = evict(state, PlacementRequest(builders.whole(1)), priority=1)

    assert [victim.uid for victim in eviction.victims] == ["held"]


def test_defect_gpuscheduler_n12_refused_node_has_a_reason():
    wish = Constraints(models=("h100",))
    request = builders.request([builders.share(10, 1)], constraints=wish)

    (refusal,) = decide(busy(gpus=1), request).refusals.values()

    assert refusal.detail == "wants h100, node has NVIDIA A100-SXM4-40GB"


def test_gpushare_design_vector_takes_the_tightest_gpu():
    free = (12207, 8138, 4069, 16276)
    gpus = [builders.gpu(at, memory=16276) for at in range(4)]
    pieces = [builders.piece(at, 0, 16276 - left) for at, left in enumerate(free) if left < 16276]
    state = busy(*pieces, gpus=gpus)

    placement = decide(state, builders.request([builders.share(0, 8138)])).placement

    assert placement.allocation.gpus == (1,)


def test_tkestack_vectors_choose_the_nodes_of_the_original():
    states = {
        f"n{at}": NodeState.empty(builders.node(f"n{at}", gpus=2, memory=4)) for at in range(3)
    }
    steps = [
        (([(10, 1)], [(10, 1)]), "n0"),
        (([(100, 0)], [(80, 3)]), "n1"),
        (([(100, 0), (100, 0)],), "n2"),
        (([(10, 2)],), "n0"),
    ]

    for at, (containers, chosen) in enumerate(steps):
        request = builders.request(
            *([builders.share(cores, memory) for cores, memory in each] for each in containers)
        )
        snapshot = builders.snapshot(*states.values())
        placement = Planner(POLICIES["binpack"]).place(snapshot, PlacementRequest(request))
        assert placement.allocation.node == chosen
        held = builders.holding(f"u{at}", *charge(request, placement.allocation))
        states[chosen] = states[chosen].hold(held)
