"""Pods that others bound and that name no GPUs: what the ledger gives them of their node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from slicewise.cluster import (
    Assume,
    Expire,
    GpuChooser,
    GpuHealth,
    Hold,
    Ledger,
    NodeGone,
    NodeSeen,
    Pin,
    PodGone,
    PodSeen,
)
from slicewise.cluster.adoption import MOST_UNASSIGNED, UnassignedPod, assign_all
from slicewise.dialects import DEFAULT, apply_record
from slicewise.model import Allocation, NodeState, Phase, charge
from slicewise.placement import PlacementRequest, Planner

A10, T4 = "NVIDIA A10", "Tesla T4"


def mixed(name="n0", models=(A10, T4), **facts):
    gpus = [builders.gpu(at, model=model) for at, model in enumerate(models)]
    return builders.node(name, gpus=gpus, **{"agent": True, **facts})


def plain(uid="u0", count=1, model=None, **facts):
    annotations = {} if model is None else {"nvidia.com/gpu.model": model}
    facts = {"node": "n0", "annotations": annotations, **facts}
    return builders.pod(uid=uid, name=uid, limits={"nvidia.com/gpu": count}, **facts)


def share(uid, cores=30, gpu=0, **facts):
    request = builders.fraction(cores, 4096)
    limits = {"slicewise.io/cores": cores, "slicewise.io/memory": 4096}
    pod = builders.pod(uid=uid, name=uid, limits=limits, node="n0", **facts)
    state = NodeState.empty(mixed())
    placement = Planner().place_on(
        builders.snapshot(state.hold(builders.holding("x", builders.piece(1 - gpu, 100, 40960)))),
        PlacementRequest(request),
        "n0",
    )
    record = DEFAULT.record_allocation(pod, request, placement.allocation, state.node, now_ns=1)
    return apply_record(pod, record)


def ledger_of(*pods, node=None):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(node or mixed()))
    for pod in pods:
        ledger.apply(PodSeen(pod))
    return ledger


def used(ledger, name="n0"):
    return ledger.snapshot().get(name).used_cores


def gpus(ledger):
    return {
        adopted.pod.uid: None if adopted.allocation is None else adopted.allocation.gpus
        for adopted in ledger.adopted_pods()
    }


def test_bound_pod_that_names_no_gpu_is_assigned_one_at_once():
    ledger = ledger_of(plain())

    assert sorted(used(ledger)) == [0, 100]
    assert not ledger.problems()


def test_assigned_gpu_is_of_the_wanted_model():
    assert gpus(ledger_of(plain(model=T4))) == {"u0": (1,)}


def test_gpu_is_what_the_engine_would_choose_on_that_node():
    ledger = ledger_of(share("s0", gpu=0))
    pod = plain()
    engine = Planner().place_on(
        ledger.snapshot(), PlacementRequest(DEFAULT.read_request(pod), salt=pod.uid), "n0"
    )

    ledger.apply(PodSeen(pod))

    assert ledger.adopted_pod("u0").allocation == engine.allocation


def test_two_pods_never_get_the_same_gpu():
    ledger = ledger_of(plain("u0"), plain("u1"))

    assert sorted(gpus(ledger).values()) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("agent", "troubles"),
    [(True, {"MissingAllocation"}), (False, {"MissingAllocation", "OverCommitted"})],
)
def test_pod_without_room_is_a_problem_charged_only_where_it_may_run(agent, troubles):
    pods = plain("u0"), plain("u1"), plain("u2")
    ledger = ledger_of(*pods, node=mixed(agent=agent))

    assert gpus(ledger)["u2"] is None
    assert "needs 1 whole GPU, none is free" in ledger.adopted_pod("u2").detail
    assert {problem.trouble for problem in ledger.problems()} == troubles


def test_pod_without_room_keeps_no_gpu_from_others_that_our_agent_would_start():
    ledger = ledger_of(plain("u0"), plain("u1", count=2))

    assert gpus(ledger)["u1"] is None
    assert sorted(used(ledger)) == [0, 100]


def test_pod_without_room_gets_the_gpu_that_is_freed():
    ledger = ledger_of(plain("u0"), plain("u1"), plain("u2"))

    ledger.apply(PodGone("u1"))

    assert gpus(ledger)["u2"] is not None
    assert not ledger.problems()


def test_model_that_only_one_gpu_has_is_left_to_who_wants_it():
    """Whoever takes any GPU is moved away from the GPU that another must have."""
    ledger = ledger_of(plain("u0"))
    taken = A10 if gpus(ledger)["u0"] == (0,) else T4

    ledger.apply(PodSeen(plain("u1", model=taken)))

    assert None not in gpus(ledger).values()
    assert not ledger.problems()


def test_pod_that_names_its_gpu_comes_before_one_that_was_assigned_it():
    ledger = ledger_of(plain("u0"))
    first = gpus(ledger)["u0"][0]

    ledger.apply(PodSeen(share("s0", gpu=first)))

    assert gpus(ledger)["u0"] == (1 - first,)
    assert not ledger.problems()


def test_gpu_whose_record_is_being_written_moves_no_more():
    ledger = ledger_of(plain("u0"))
    first = gpus(ledger)["u0"][0]
    ledger.apply(Pin("u0"))

    ledger.apply(PodSeen(share("s0", gpu=first)))

    assert gpus(ledger)["u0"] == (first,)
    assert [problem.trouble for problem in ledger.problems()] == ["OverCommitted"]


def test_record_takes_the_place_of_what_was_chosen():
    ledger = ledger_of(plain("u0"))
    adopted = ledger.adopted_pod("u0")
    record = DEFAULT.record_allocation(
        adopted.pod, adopted.request, adopted.allocation, adopted.node, now_ns=1
    )
    before = used(ledger)

    ledger.apply(PodSeen(replace(apply_record(adopted.pod, record), version=2)))

    assert ledger.adopted_pods() == ()
    assert used(ledger) == before


def test_unhealthy_gpu_keeps_the_pod_it_was_assigned_to():
    ledger = ledger_of(plain("u0"))
    at = gpus(ledger)["u0"][0]

    ledger.apply(GpuHealth("n0", f"GPU-{at}", healthy=False))

    assert gpus(ledger) == {"u0": (at,)}


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_ended_pod_gives_its_gpu_back(phase):
    ledger = ledger_of(plain("u0"))

    ledger.apply(PodSeen(plain("u0", phase=phase, version=2)))

    assert used(ledger) == (0, 0)


def test_pod_that_ran_before_our_agent_is_not_assigned_a_gpu_that_may_be_anothers():
    ledger = ledger_of(plain("u0", phase=Phase.RUNNING))

    assert ledger.adopted_pods() == ()
    assert used(ledger) == (100, 100)


def test_running_pods_on_a_node_of_nvidias_plugin_are_counted():
    ledger = ledger_of(plain("u0", phase=Phase.RUNNING), node=mixed(agent=False))

    assert sorted(used(ledger)) == [0, 100]


def test_pod_seen_waiting_keeps_its_gpu_when_it_runs():
    ledger = ledger_of(plain("u0"))
    ledger.apply(PodSeen(plain("u0", phase=Phase.RUNNING, version=2)))

    assert sorted(used(ledger)) == [0, 100]


def test_pod_of_a_system_that_records_is_never_assigned_gpus():
    pod = builders.pod(limits={"aliyun.com/gpu-mem": 3}, node="n0")

    assert ledger_of(pod).adopted_pods() == ()


def test_list_in_any_order_gives_what_the_records_leave():
    recorded = share("s0", gpu=0)

    ledger = ledger_of(plain("u0"), recorded)

    assert gpus(ledger) == {"u0": (1,)}


def test_choice_goes_with_its_node_and_is_made_anew_when_it_returns():
    ledger = ledger_of(plain("u0"), plain("u1"), plain("u2"))
    ledger.problems()

    ledger.apply(NodeGone("n0", 5))
    assert not ledger.problems()
    ledger.apply(NodeSeen(mixed(), 6))

    assert sorted(filter(None, gpus(ledger).values())) == [(0,), (1,)]


def test_cpu_that_is_used_up_takes_no_gpu_from_a_bound_pod():
    node = mixed(host=builders.host(1000, 1024))
    ledger = ledger_of(node=node)
    busy = builders.pod(builders.container(cpu=5), uid="busy", name="busy", node="n0", version=1)
    ledger.apply(PodSeen(busy))

    ledger.apply(PodSeen(plain("u0")))

    assert gpus(ledger)["u0"] is not None


def held_on(ledger, *nodes, deadline=5.0, uid="u0"):
    pod = plain(uid, node=None)
    request = DEFAULT.read_request(pod)
    placed = [
        Planner().place_on(ledger.snapshot(), PlacementRequest(request), name) for name in nodes
    ]
    event = Hold(pod, request, tuple(each.allocation for each in placed), deadline)
    return ledger.apply(event)


def two_nodes():
    ledger = ledger_of()
    ledger.apply(NodeSeen(mixed("n1")))
    return ledger


def test_gpus_are_held_on_every_node_a_filtered_pod_may_go_to():
    ledger = two_nodes()

    assert held_on(ledger, "n0", "n1")
    assert (sum(used(ledger)), sum(used(ledger, "n1"))) == (100, 100)


def test_bound_pod_has_the_gpu_that_was_held_and_frees_the_others():
    ledger = two_nodes()
    held_on(ledger, "n0", "n1")
    held = used(ledger)

    ledger.apply(PodSeen(plain("u0", version=2)))

    assert used(ledger) == held
    assert used(ledger, "n1") == (0, 0)


def test_hold_ends_at_its_deadline():
    ledger = two_nodes()
    held_on(ledger, "n0", "n1", deadline=5.0)

    ledger.apply(Expire(5.0))

    assert (used(ledger), used(ledger, "n1")) == ((0, 0), (0, 0))
    assert ledger.reserved_on("u0") == ()
    assert ledger.pods == 0


def test_hold_ends_with_its_pod():
    ledger = two_nodes()
    held_on(ledger, "n0", "n1")

    ledger.apply(PodGone("u0"))

    assert (used(ledger), used(ledger, "n1")) == ((0, 0), (0, 0))


def test_decision_of_our_own_takes_the_place_of_what_was_held():
    ledger = ledger_of(node=mixed(models=(T4,)))
    held_on(ledger, "n0")
    pod = plain("u0", node=None)
    request = DEFAULT.read_request(pod)
    allocation = Planner().place_on(
        builders.snapshot(mixed(models=(T4,))), PlacementRequest(request), "n0"
    )

    assert ledger.apply(Assume("u0", "default", "u0", request, allocation.allocation, deadline=9.0))
    assert used(ledger) == (100,)
    assert ledger.reserved_on("u0") == (("n0", "u0"),)


def test_new_hold_takes_the_place_of_the_old():
    ledger = two_nodes()
    held_on(ledger, "n0", "n1")
    held_on(ledger, "n1")

    assert (sum(used(ledger)), sum(used(ledger, "n1"))) == (0, 100)


models = st.sampled_from([A10, T4])
asked_pods = st.lists(st.tuples(st.integers(1, 3), st.none() | models), max_size=6)


@given(gpus=st.lists(models, min_size=1, max_size=6), asked=asked_pods, busy=st.integers(0, 5))
def test_shared_out_gpus_are_free_of_the_model_and_nobody_elses(gpus, asked, busy):
    node = mixed(models=gpus)
    state = NodeState.empty(node)
    if busy < len(gpus):
        state = state.hold(builders.holding("busy", builders.piece(busy, 30, 1)))
    pods = [plain(f"u{at}", count, model) for at, (count, model) in enumerate(asked)]
    requests = {pod.uid: DEFAULT.read_request(pod) for pod in pods}

    found = assign_all(
        state, [UnassignedPod(uid, each) for uid, each in requests.items()], GpuChooser()
    )

    taken = [busy] if busy < len(gpus) else []
    for uid, allocation in found.items():
        if allocation is not None:
            pieces = charge(requests[uid], allocation)
            assert all(piece.cores == 100 for piece in pieces)
            wanted = requests[uid].constraints.models
            assert all(not wanted or gpus[piece.gpu] in wanted for piece in pieces)
            taken += [piece.gpu for piece in pieces]
    assert len(taken) == len(set(taken))


@given(asked=asked_pods, seed=st.randoms(use_true_random=False))
def test_what_is_assigned_does_not_depend_on_the_order_of_pods(asked, seed):
    state = NodeState.empty(mixed(models=(A10, A10, T4, T4)))
    pods = [plain(f"u{at}", count, model) for at, (count, model) in enumerate(asked)]
    pods_in_order = [UnassignedPod(pod.uid, DEFAULT.read_request(pod)) for pod in pods]
    shuffled = list(pods_in_order)
    seed.shuffle(shuffled)

    assert assign_all(state, shuffled, GpuChooser()) == assign_all(
        state, pods_in_order, GpuChooser()
    )


def test_what_was_assigned_on_another_node_is_not_kept():
    pod = UnassignedPod("u0", builders.whole(), Allocation("elsewhere"))

    found = assign_all(NodeState.empty(mixed()), [pod], GpuChooser())

    assert found["u0"].node == "n0"


def crowd(count=1000, **facts):
    models = [f"model-{at}" for at in range(count)]
    return [plain(f"u{at:04}", model=models[at], **facts) for at in range(count)]


def test_thousand_pods_on_a_node_cost_no_more_than_it_can_run():
    asked = []

    def choose(state, unassigned):
        asked.append(unassigned.uid)
        return GpuChooser()(state, unassigned)

    ledger = Ledger(DEFAULT, choose)
    ledger.apply(NodeSeen(mixed()))
    for pod in crowd():
        ledger.apply(PodSeen(pod))

    ledger.snapshot()

    assert 0 < len(asked) <= 2 * MOST_UNASSIGNED
    waiting = [each for each in ledger.problems() if "pods of its node wait" in each.detail]
    assert len(waiting) == 1000 - MOST_UNASSIGNED


def test_crowd_of_one_namespace_leaves_gpus_to_others_within_their_turn():
    ledger = ledger_of(*crowd(), plain("z0", namespace="other"), plain("z1", namespace="other"))

    assert {uid for uid, found in gpus(ledger).items() if found} == {"z0", "z1"}


def test_pod_of_a_crowd_gets_a_gpu_when_those_before_it_are_gone():
    ledger = ledger_of(*(plain(f"u{at:04}") for at in range(MOST_UNASSIGNED + 2)))
    last = f"u{MOST_UNASSIGNED + 1:04}"
    assert gpus(ledger)[last] is None

    for at in range(MOST_UNASSIGNED):
        ledger.apply(PodGone(f"u{at:04}"))

    assert gpus(ledger)[last] is not None
    assert not ledger.problems()


def test_crowd_on_a_node_without_our_agent_may_have_any_of_its_gpus():
    ledger = ledger_of(*crowd(phase=Phase.RUNNING), node=mixed(agent=False))

    assert min(used(ledger)) >= 100
