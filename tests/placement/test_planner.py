"""Where pods go, and on which GPUs."""

import pytest

import builders
from slicewise.model import (
    WHOLE_GPU,
    Constraints,
    ContainerRequest,
    NodeState,
    Role,
    charge,
)
from slicewise.placement import POLICIES, PlacementRequest, Planner, QuotaLimits, read_policy


def place(snapshot, request, policy="binpack", **facts):
    return Planner(read_policy(policy)).place(snapshot, PlacementRequest(request, **facts))


def allocated(placement):
    return [[piece.gpu for piece in each.slices] for each in placement.allocation.containers]


def busy(name="n0", *charges, gpus=2, **facts):
    state = NodeState.empty(builders.node(name, gpus=gpus, **facts))
    return state.hold(builders.holding("held", *charges))


def test_share_goes_to_the_fullest_gpu_that_has_room():
    snapshot = builders.snapshot(busy("n0", builders.piece(1, 40, 8192)))

    assert allocated(place(snapshot, builders.fraction(30, 4096))) == [[1]]


def test_share_avoids_a_gpu_whose_memory_is_taken():
    snapshot = builders.snapshot(busy("n0", builders.piece(1, 10, 40000)))

    assert allocated(place(snapshot, builders.fraction(30, 4096))) == [[0]]


def test_spread_takes_the_emptier_node_and_gpu():
    snapshot = builders.snapshot(
        busy("n0", builders.piece(0, 50, 9000)), busy("n1", builders.piece(0, 10, 1000))
    )

    placement = place(snapshot, builders.fraction(10, 100), "spread")

    assert (placement.allocation.node, allocated(placement)) == ("n1", [[1]])


def test_ties_go_to_the_lowest_name_then_the_lowest_gpu():
    snapshot = builders.snapshot(builders.node("b"), builders.node("a"))

    placement = place(snapshot, builders.fraction())

    assert (placement.allocation.node, allocated(placement)) == ("a", [[0]])


def test_given_order_breaks_ties_before_names():
    snapshot = builders.snapshot(builders.node("a"), builders.node("b"))
    planner = Planner(POLICIES["binpack"], order={"b": 0, "a": 1})

    placement = planner.place(snapshot, PlacementRequest(builders.fraction()))

    assert placement.allocation.node == "b"


def test_whole_gpu_takes_all_the_memory_of_its_gpu():
    gpus = [builders.gpu(0, memory=8192), builders.gpu(1, memory=81920)]
    snapshot = builders.snapshot(busy("n0", builders.piece(0, 1, 1), gpus=gpus))

    placement = place(snapshot, builders.whole(1))

    assert placement.allocation.containers[0].slices == (builders.piece(1, 100, 81920),)


def test_whole_gpu_is_not_given_where_only_memory_is_held():
    snapshot = builders.snapshot(busy("n0", builders.piece(0, 0, 1024), gpus=1))

    assert place(snapshot, builders.whole(1)) is None


def test_several_gpus_with_so_much_on_each():
    snapshot = builders.snapshot(busy("n0", builders.piece(2, 0, 39000), gpus=5))

    placement = place(snapshot, builders.request([builders.share(0, 3072)] * 4))

    assert allocated(placement) == [[0, 1, 3, 4]]


def test_containers_of_one_pod_see_each_other():
    snapshot = builders.snapshot(builders.node(gpus=2))
    request = builders.request([builders.share(60, 100)], [builders.share(60, 100)])

    assert sorted(allocated(place(snapshot, request))) == [[0], [1]]


def test_containers_of_one_pod_may_share_a_gpu():
    snapshot = builders.snapshot(builders.node(gpus=2))
    request = builders.request([builders.share(60, 100)], [builders.share(40, 100)])

    assert allocated(place(snapshot, request)) == [[0], [0]]


def test_together_puts_every_container_on_the_same_gpus():
    snapshot = builders.snapshot(busy("n0", builders.piece(0, 0, 35000)))
    request = builders.request(
        [builders.share(0, 4096)],
        [builders.share(0, 4096)],
        constraints=Constraints(together=True),
    )

    assert allocated(place(snapshot, request)) == [[1], [1]]


def test_init_container_uses_again_what_the_pod_will_hold():
    snapshot = builders.snapshot(builders.node(gpus=1))
    request = builders.request(
        ContainerRequest("warm-up", (WHOLE_GPU,), Role.INIT),
        ContainerRequest("serve", (builders.share(80, 1000),)),
    )

    placement = place(snapshot, request)

    assert charge(request, placement.allocation) == (builders.piece(0, 100, 40960),)


def test_sidecar_holds_its_share_beside_an_init_container():
    snapshot = builders.snapshot(builders.node(gpus=1))
    request = builders.request(
        ContainerRequest("proxy", (builders.share(30, 1),), Role.SIDECAR),
        ContainerRequest("warm-up", (builders.share(80, 1),), Role.INIT),
    )

    assert place(snapshot, request) is None


def test_tight_packing_is_found_where_the_first_try_fails():
    # Greedy puts 50 on the 60-gpu and then has no 60 for the next.
    snapshot = builders.snapshot(
        busy("n0", builders.piece(0, 40, 0), builders.piece(1, 45, 0), gpus=2)
    )
    request = builders.request(
        [builders.share(30, 1)], [builders.share(30, 1)], [builders.share(55, 1)]
    )

    placement = place(snapshot, request)

    assert sorted(allocated(placement)) == [[0], [0], [1]]


def test_wanted_model_is_found_by_its_number_alone():
    snapshot = builders.snapshot(
        builders.node("a", model="NVIDIA A100-SXM4-40GB"),
        builders.node("b", model="NVIDIA GeForce RTX 3090"),
        builders.node("c", model="NVIDIA A10"),
    )

    for wanted, node in (("3090", "b"), ("a10", "c"), ("a100", "a")):
        request = builders.request([WHOLE_GPU], constraints=Constraints(models=(wanted,)))
        assert place(snapshot, request).allocation.node == node


def test_refused_model_and_named_uuids_decide_per_gpu_on_a_mixed_node():
    gpus = [builders.gpu(0, model="Tesla T4"), builders.gpu(1, model="NVIDIA A10"), builders.gpu(2)]
    snapshot = builders.snapshot(builders.node(gpus=gpus))
    refuse = Constraints(models_refused=("t4",), uuids_refused=("GPU-1",))
    want = Constraints(uuids=("GPU-1",))

    assert allocated(place(snapshot, builders.request([WHOLE_GPU], constraints=refuse))) == [[2]]
    assert allocated(place(snapshot, builders.request([WHOLE_GPU], constraints=want))) == [[1]]


def test_unhealthy_and_mig_gpus_are_passed_over():
    gpus = [builders.gpu(0, healthy=False), builders.gpu(1, mig=True), builders.gpu(2)]

    snapshot = builders.snapshot(builders.node(gpus=gpus))

    assert allocated(place(snapshot, builders.fraction())) == [[2]]


def test_only_the_nodes_asked_are_considered():
    snapshot = builders.snapshot(builders.node("a"), builders.node("b"))

    placement = place(snapshot, builders.fraction(), nodes=["b", "unknown"])

    assert placement.allocation.node == "b"


def test_grant_limits_models_and_pools():
    snapshot = builders.snapshot(
        builders.node("a", model="T4", pool="p"), builders.node("b", model="A100", pool="q")
    )
    by_model = QuotaLimits(models=frozenset({"A100"}))
    by_pool = QuotaLimits(pools=frozenset({"q"}))

    assert place(snapshot, builders.whole(1), limits=by_model).allocation.node == "b"
    assert place(snapshot, builders.whole(1), limits=by_pool).allocation.node == "b"


def test_load_policy_takes_the_least_busy_gpu():
    snapshot = builders.snapshot(builders.node("a"), builders.node("b"))
    planner = Planner(POLICIES["load"])
    load = {"a": (90, 70), "b": (80, 20)}

    placement = planner.place(snapshot, PlacementRequest(builders.fraction()), load)

    assert (placement.allocation.node, allocated(placement)) == ("b", [[1]])


def test_composed_policy_weighs_its_parts():
    snapshot = builders.snapshot(
        busy("a", builders.piece(0, 50, 20000)), builders.node("b", gpus=2)
    )
    load = {"a": (100, 100), "b": (0, 0)}
    light = Planner(read_policy("node=binpack:10,load:1 gpu=binpack"))
    heavy = Planner(read_policy("node=binpack:1,load:10 gpu=binpack"))

    wanted = PlacementRequest(builders.fraction(10, 10))
    assert light.place(snapshot, wanted, load).allocation.node == "a"
    assert heavy.place(snapshot, wanted, load).allocation.node == "b"


def test_random_is_the_same_for_the_same_seed_and_pod():
    snapshot = builders.snapshot(*(builders.node(f"n{at}") for at in range(20)))

    def chosen(seed, salt):
        planner = Planner(read_policy("random", seed))
        return planner.place(snapshot, PlacementRequest(builders.fraction(), salt=salt)).allocation

    assert chosen(1, "pod-a") == chosen(1, "pod-a")
    assert len({chosen(1, f"pod-{at}").node for at in range(20)}) > 5


def test_pod_without_gpus_may_go_anywhere_with_cpu():
    small = builders.node("a", gpus=0, host=builders.host(500))
    large = builders.node("b", gpus=0, host=builders.host(8000))
    request = builders.request(host=builders.host(1000))

    assert place(builders.snapshot(small, large), request).allocation.node == "b"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_places_on_an_empty_cluster_and_refuses_a_full_one(policy):
    empty = builders.snapshot(builders.node(gpus=2))
    full = builders.snapshot(
        busy("n0", builders.piece(0, 100, 40960), builders.piece(1, 100, 40960))
    )

    for request in (
        builders.fraction(),
        builders.whole(2),
        builders.request([builders.share(0, 9)]),
    ):
        assert place(empty, request, policy) is not None
        assert place(full, request, policy) is None


def test_empty_cluster_places_nothing():
    assert place(builders.snapshot(), builders.fraction()) is None
