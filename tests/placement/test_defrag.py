"""Plans of moves are possible step by step, end with the pod fitting, and have the fewest moves."""

from itertools import combinations, permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import builders
from slicewise.model import FULL, NodeState, charge
from slicewise.placement import POLICIES, PlacementRequest, Planner, feasible
from slicewise.placement.defrag import (
    MovablePod,
    MoveSimulator,
    Room,
    SearchLimits,
    plan_moves,
)

MEMORY = 1000
WIDE = SearchLimits(moves=3, trials=100_000)


def planner():
    return Planner(POLICIES["default"])


def share(cores):
    return builders.fraction(cores, cores * MEMORY // 100) if cores < 100 else builders.whole(1)


def cluster(*nodes):
    """Nodes n0, n1…, each a list of GPUs, each a list of the percents that pods hold of it."""
    states, movable = [], []
    for at, gpus in enumerate(nodes):
        name = f"n{at}"
        state = NodeState.empty(builders.node(name, gpus=len(gpus), memory=MEMORY))
        for gpu, percents in enumerate(gpus):
            for number, cores in enumerate(percents):
                uid = f"{name}-{gpu}-{number}"
                piece = builders.piece(gpu, cores, cores * MEMORY // 100)
                state = state.hold(builders.holding(uid, piece))
                movable.append(MovablePod(uid, name, PlacementRequest(share(cores)), seconds=3600))
        states.append(state)
    return builders.snapshot(*states), movable


def plan(snapshot, wanted, movable, limits=WIDE):
    return plan_moves(planner(), snapshot, PlacementRequest(wanted), movable, limits)


def moved(outcome):
    return [move.uid for move in outcome.plan.moves]


def check_steps(snapshot, movable, wanted, found):
    """Every move leaves and arrives where there is room, and at the end the pod fits."""
    requests = {pod.uid: pod.wanted.request for pod in movable}
    for move in found.moves:
        before = snapshot.get(move.left.node).find(move.uid)
        assert before.charges == move.left.pieces
        snapshot = snapshot.release(move.left.node, move.uid)
        charges = charge(requests[move.uid], move.target)
        state = snapshot.get(move.target.node)
        assert all(state.has_room(piece) for piece in charges)
        snapshot = snapshot.hold(move.target.node, builders.holding(move.uid, *charges))
        for each in snapshot:
            assert all(used <= FULL for used in each.used_cores)
            assert all(used <= MEMORY for used in each.used_memory)
    state = snapshot.get(found.allocation.node)
    assert all(state.has_room(piece) for piece in charge(wanted, found.allocation))


def test_pod_that_fits_needs_no_move():
    snapshot, movable = cluster([[50], []])

    outcome = plan(snapshot, builders.whole(1), movable)

    assert (outcome.plan.moves, outcome.exact) == ((), True)
    assert outcome.plan.allocation.gpus == (1,)


def test_half_moves_beside_the_other_half_of_the_same_node():
    snapshot, movable = cluster([[50], [50]])

    outcome = plan(snapshot, builders.whole(1), movable)

    assert len(outcome.plan.moves) == 1
    assert outcome.plan.moves[0].target.node == "n0"
    assert outcome.exact


def test_eight_gpus_are_cleared_of_the_one_pod_on_them():
    free, fixed = [[] for _ in range(7)], [[100] for _ in range(7)]
    snapshot, movable = cluster([[40], *free], [[40], *fixed])
    movable = [pod for pod in movable if pod.wanted.request != builders.whole(1)]

    outcome = plan(snapshot, builders.whole(8), movable)

    assert moved(outcome) == ["n0-0-0"]
    assert outcome.plan.moves[0].target.node == "n1"


def test_of_equally_few_moves_those_that_interrupt_least_are_chosen():
    snapshot, movable = cluster([[50]], [[50]], [[50, 40]])
    worn = [
        MovablePod(pod.uid, pod.node, pod.wanted, seconds=60 if pod.node == "n1" else 9000)
        for pod in movable
    ]

    outcome = plan(snapshot, builders.whole(1), worn)

    assert moved(outcome) == ["n1-0-0"]
    assert outcome.plan.gpu_hours == 50 * 60 / 360_000


def test_pods_that_may_not_move_stay():
    snapshot, movable = cluster([[50], [50]])

    assert moved(plan(snapshot, builders.whole(1), movable[1:])) == ["n0-1-0"]
    assert plan(snapshot, builders.whole(1), []).plan is None


def test_nobody_moves_where_nothing_helps():
    snapshot, movable = cluster([[60]], [[60]])

    assert plan(snapshot, builders.whole(1), movable).plan is None
    assert plan(snapshot, builders.whole(3), movable).plan is None


def test_moved_pod_goes_where_it_may():
    snapshot, movable = cluster([[50]], [[50]], [[50]])
    [pod] = [each for each in movable if each.node == "n0"]
    kept = MovablePod(pod.uid, pod.node, PlacementRequest(share(50), nodes=["n0", "n2"]))

    outcome = plan(snapshot, builders.whole(1), [kept])

    assert outcome.plan.moves[0].target.node == "n2"


def test_another_pod_moves_first_where_that_is_the_only_way():
    """60 % can go to n1 alone, and only once the 30 % there has gone to n2."""
    snapshot, movable = cluster([[60]], [[30, 20]], [[70]])
    fixed = {"n1-0-1", "n2-0-0"}
    movable = [pod for pod in movable if pod.uid not in fixed]

    outcome = plan(snapshot, builders.whole(1), movable)

    assert moved(outcome) == ["n1-0-0", "n0-0-0"]
    assert outcome.exact


def test_room_holds_no_more_than_what_is_free():
    snapshot, _ = cluster([[30, 30], []])
    room = Room("n0", (builders.piece(0, 100, MEMORY), builders.piece(1, 100, MEMORY)))

    assert room.free_part(snapshot.get("n0")) == (
        builders.piece(0, 40, 400),
        builders.piece(1, 100, MEMORY),
    )


def test_search_that_was_cut_short_says_so():
    snapshot, movable = cluster(*[[[60]] for _ in range(6)])

    outcome = plan(snapshot, builders.whole(1), movable, SearchLimits(moves=3, trials=4))

    assert (outcome.plan, outcome.exact) == (None, False)


def test_large_cluster_is_planned_without_all_sets():
    nodes = [[[20, 20, 20], [20, 20], [30, 30, 30], [90]] for _ in range(12)]
    snapshot, movable = cluster(*nodes)

    outcome = plan(snapshot, builders.whole(2), movable, SearchLimits(moves=6))

    check_steps(snapshot, movable, builders.whole(2), outcome.plan)
    # The pod of 90 % fits nowhere else, so it takes the two GPUs with the fewest others.
    assert len(outcome.plan.moves) == 5


used = st.sampled_from([[20], [30], [50], [60], [100], [20, 20], [30, 50], [20, 60], [20, 20, 30]])
tiny = st.lists(st.lists(used, min_size=1, max_size=2), min_size=2, max_size=3)
small = st.lists(st.lists(used | st.just([]), min_size=1, max_size=4), min_size=2, max_size=6)


@given(small, st.integers(1, 3), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_plan_never_overcommits_and_ends_with_the_pod_fitting(nodes, count, data):
    snapshot, movable = cluster(*nodes)
    if movable:
        fixed = data.draw(st.sets(st.sampled_from([pod.uid for pod in movable]), max_size=3))
        movable = [pod for pod in movable if pod.uid not in fixed]
    wanted = builders.whole(count)

    outcome = plan(snapshot, wanted, movable, SearchLimits(moves=4, trials=60))

    if outcome.plan is not None:
        check_steps(snapshot, movable, wanted, outcome.plan)
        assert {move.uid for move in outcome.plan.moves} <= {pod.uid for pod in movable}
        assert len({move.uid for move in outcome.plan.moves}) == len(outcome.plan.moves)


def fewest_by_force(snapshot, wanted, movable, most):
    """The fewest moves of any pods in any order that make room on any node, by trying all."""
    asked = PlacementRequest(wanted)
    simulator = MoveSimulator(planner(), snapshot, asked, {pod.uid: pod for pod in movable})
    if any(feasible(state, wanted, asked.limits) for state in snapshot):
        return 0
    rooms = {}
    for node in snapshot.slots:
        here = [pod.uid for pod in movable if pod.node == node]
        for size in range(1, most + 1):
            for victims in combinations(here, size):
                rooms[frozenset(victims)] = simulator.find_room(node, victims)
    for size in range(1, most + 1):
        for order in permutations([pod.uid for pod in movable], size):
            for victims, room in rooms.items():
                if room is not None and victims <= set(order) and simulator.run(order, room):
                    return size
    return None


@given(tiny, st.sampled_from([builders.whole(1), builders.whole(2), share(60)]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_is_longer_than_the_shortest_that_trying_everything_finds(nodes, wanted):
    snapshot, movable = cluster(*nodes)
    movable = movable[:6]

    outcome = plan(snapshot, wanted, movable, SearchLimits(moves=2, trials=100_000))

    shortest = fewest_by_force(snapshot, wanted, movable, 2)
    assert outcome.exact
    assert (None if outcome.plan is None else len(outcome.plan.moves)) == shortest
