import pytest

import builders
from slicewise.placement import POLICIES, shape_of
from slicewise.sim.draw import MEASURED, WARM_UP, draw_arrivals, draw_visits
from slicewise.sim.replay import Replay, ReplayOptions, replay, replay_visits
from slicewise.sim.trace import ArrivalOrder, Trace, TracePod


def trace(*requests, nodes=1, gpus=2, **facts):
    return Trace(
        "t",
        tuple(builders.node(f"n{at}", gpus=gpus, **facts) for at in range(nodes)),
        tuple(TracePod(f"p{at}", request) for at, request in enumerate(requests)),
    )


def mixed(nodes=6):
    shapes = [builders.fraction(30), builders.fraction(60), builders.whole(), builders.whole(4)]
    return trace(*shapes * 10, nodes=nodes, gpus=8)


def test_refused_pods_count_by_size_and_leave_the_allocation_alone():
    of = trace(builders.whole(2), builders.fraction(50), builders.whole(1))

    record = replay(of, ArrivalOrder([0, 1, 2]), POLICIES["binpack"])

    assert record.arrived == [200, 250, 350]
    assert record.allocated == [200, 200, 200]
    assert record.accepted == {"2": 1}
    assert record.refused == {"part": 1, "1": 1}


def test_whole_gpu_holds_all_its_memory():
    record = replay(
        trace(builders.whole(), builders.fraction(50, 1000), memory=8192),
        ArrivalOrder([0, 1]),
        POLICIES["binpack"],
    )

    assert record.allocated_memory == [8192, 9192]


def test_memory_alone_counts_as_its_part_of_an_average_gpu():
    of = trace(builders.request([builders.share(0, 2048)]), memory=8192)

    assert of.demands == (25,)
    assert replay(of, ArrivalOrder([0]), POLICIES["binpack"]).allocated == [25]


def test_fragmentation_is_all_of_a_gpu_no_pod_can_use():
    of = trace(builders.fraction(60), gpus=1)

    record = replay(of, ArrivalOrder([0]), POLICIES["binpack"])

    assert record.fragmented == [400.0]


def test_ties_go_to_the_node_with_the_lowest_rank():
    of = trace(builders.whole(), nodes=3)
    run = Replay(of, POLICIES["binpack"], {"n0": 2, "n1": 0, "n2": 1}.items())

    run.arrive(0)

    assert [bool(state.holdings) for state in run.ledger.snapshot()] == [False, True, False]


@pytest.mark.parametrize("policy", ["default", "fgd"])
def test_learning_keeps_the_ledger_and_knows_only_what_arrived(policy):
    of = mixed()
    arrivals = draw_arrivals(of, 3, load=300)
    run = Replay(of, POLICIES[policy], arrivals.ranks.items(), ReplayOptions(learn=True))

    assert run.planner.workload.counts == {}
    for pod in arrivals.order[:60]:
        run.arrive(pod)

    seen = [shape_of(of.pods[pod].request) for pod in arrivals.order[:50]]
    assert dict(run.planner.workload.counts) == {kind: seen.count(kind) for kind in set(seen)}
    held = sum(sum(state.used_cores) for state in run.ledger.snapshot())
    assert held == run.allocated > 0


def test_everything_is_free_again_once_all_pods_have_left():
    of = mixed()
    run = Replay(of, POLICIES["fgd"])
    taken = [uid for pod in range(len(of.pods)) if (uid := run.arrive(pod))]

    for uid in taken:
        run.leave(uid)

    assert run.allocated == run.allocated_memory == 0
    assert all(not state.holdings for state in run.ledger.snapshot())


def test_steady_allocation_is_the_mean_over_the_measured_time():
    of = mixed(nodes=40)
    visits = draw_visits(of, 5, 0.4)
    held = sum(
        of.demands[pod] * max(0.0, min(come + stay, WARM_UP + MEASURED) - max(come, WARM_UP))
        for pod, come, stay in zip(visits.order, visits.times, visits.stays, strict=True)
    )

    steady = replay_visits(of, visits, POLICIES["best-fit"])

    assert not steady.refused
    assert steady.taken == steady.offered
    assert steady.allocated == pytest.approx(held / MEASURED)
    assert steady.accepted_percent("4") == 100.0


def test_overload_refuses_and_says_how_much():
    of = mixed(nodes=10)
    steady = replay_visits(of, draw_visits(of, 5, 1.5), POLICIES["best-fit"])

    assert 0 < steady.taken < steady.offered
    assert steady.accepted_percent("4") < steady.accepted_percent("part")


def test_replay_is_the_same_every_time():
    of = mixed()
    arrivals = draw_arrivals(of, 3, load=150)
    frozen = ReplayOptions(clock=lambda: 0.0)

    assert replay(of, arrivals, POLICIES["random"], frozen) == replay(
        of, arrivals, POLICIES["random"], frozen
    )


def test_refused_pod_is_taken_once_another_was_moved():
    half, whole = builders.fraction(50, 100), builders.whole(1)
    of = trace(half, half, half, half, whole)

    def run(moves):
        replayed = Replay(of, POLICIES["best-fit"], options=ReplayOptions(moves=moves))
        uids = [replayed.arrive(pod) for pod in range(4)]
        # One half is left on each of the two GPUs.
        for uid in (uids[0], uids[2]):
            replayed.leave(uid)
        return replayed.arrive(4), replayed.moves, replayed.allocated

    assert run(0) == (None, 0, 100)
    assert run(1) == ("0000004", 1, 200)
