"""The search: exact on small nodes, and never longer than its steps."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from slicewise.model import WHOLE_GPU, ContainerRequest, NodeState, Reason, Request, Role
from slicewise.placement import PlacementRequest, Planner, Screener, StepBudget
from slicewise.placement.counting import FreeTables, pack, possible
from slicewise.placement.groups import split
from slicewise.placement.search import UNDECIDED, counted_out, find, free_table
from slicewise.placement.tables import NodeTables

PLENTY = 1 << 30
amounts = st.tuples(st.sampled_from([0, 30, 45, 60]), st.sampled_from([1, 4, 7]))
shares = st.one_of(st.just(WHOLE_GPU), amounts.map(lambda each: builders.share(*each)))
containers = st.tuples(
    st.lists(shares, min_size=1, max_size=2),
    st.sampled_from([Role.MAIN, Role.MAIN, Role.SIDECAR, Role.INIT]),
)
held = st.tuples(st.sampled_from([0, 0, 40, 55, 70, 100]), st.sampled_from([0, 3, 6, 10]))


@st.composite
def requests(draw):
    asked = draw(st.lists(containers, min_size=1, max_size=4))
    return Request(
        tuple(
            ContainerRequest(f"c{at}", tuple(each), role) for at, (each, role) in enumerate(asked)
        )
    )


@st.composite
def states(draw):
    gpus = [builders.gpu(at, memory=10, uuid=f"G{at}") for at in range(draw(st.integers(1, 3)))]
    state = NodeState.empty(builders.node("n0", gpus=gpus))
    for at in range(len(gpus)):
        cores, memory = draw(held)
        if cores or memory:
            state = state.hold(builders.holding(f"h{at}", builders.piece(at, cores, memory)))
    return state


def fits_by_trying_all(state, request):
    """Every way to put every share somewhere, as the rules say it and nothing else."""
    gpus = range(len(state.node.gpus))
    running = [each for each in request.containers if each.role is not Role.INIT]
    ways = [list(combinations_in_order(gpus, len(each.shares))) for each in running]
    return any(
        holds(state, list(zip(running, way, strict=True)))
        and all(
            any(
                holds(state, [*sidecars(running, way), (init, gpus_of)])
                for gpus_of in combinations_in_order(gpus, len(init.shares))
            )
            for init in request.containers
            if init.role is Role.INIT
        )
        for way in product(*ways)
    )


def combinations_in_order(gpus, count):
    return (way for way in product(gpus, repeat=count) if len(set(way)) == count)


def sidecars(running, way):
    pairs = zip(running, way, strict=True)
    return [(each, gpus) for each, gpus in pairs if each.role is Role.SIDECAR]


def holds(state, placed):
    shares_on = {}
    for container, gpus in placed:
        for share, gpu in zip(container.shares, gpus, strict=True):
            shares_on.setdefault(gpu, []).append(share)
    return all(
        (len(each) == 1 and state.untouched(gpu))
        if any(share.whole for share in each)
        else sum(share.cores for share in each) <= state.free_cores(gpu)
        and sum(share.memory for share in each) <= state.free_memory(gpu)
        for gpu, each in shares_on.items()
    )


@settings(max_examples=100)
@given(states(), requests())
def test_search_finds_a_way_exactly_when_there_is_one(state, request):
    table, _ = free_table(state, range(len(state.node.gpus)))

    found = find(table, split(request), StepBudget(PLENTY))

    assert (found is not None) == fits_by_trying_all(state, request)


@settings(max_examples=100)
@given(states(), requests())
def test_counting_and_packing_agree_with_the_search(state, request):
    tables, groups = NodeTables(), split(request)
    view = tables.sync(builders.snapshot(state))
    table, _ = free_table(state, range(len(state.node.gpus)))
    found = find(table, groups, StepBudget(PLENTY))
    free = FreeTables(view, None)

    assert free.table(0) == table
    if found is not None:
        assert possible(view, groups, None)[0]
        assert not counted_out(table, groups)
    if pack(free, groups)[0]:
        assert found is not None
    assert free.table(0) == table


@settings(max_examples=100)
@given(states(), requests(), st.integers(0, 40))
def test_search_takes_no_more_steps_than_it_has(state, request, steps):
    table, _ = free_table(state, range(len(state.node.gpus)))
    budget = CountingBudget(steps)

    found = find(table, split(request), budget)

    assert budget.taken <= steps
    if found is not UNDECIDED:
        assert (found is None) == (find(table, split(request), StepBudget(PLENTY)) is None)


class CountingBudget(StepBudget):
    taken = 0

    def take(self, steps=1):
        granted = super().take(steps)
        self.taken += steps if granted else 0
        return granted


def test_nine_containers_of_whole_gpus_are_refused_by_counting_alone():
    request = builders.request(*([WHOLE_GPU] for _ in range(9)))
    state = NodeState.empty(builders.node("n0", gpus=8))

    table, _ = free_table(state, range(8))

    assert counted_out(table, split(request))


def test_containers_that_no_empty_node_can_hold_are_no_reason_to_evict():
    request = builders.request(*([WHOLE_GPU] for _ in range(9)))
    snapshot = builders.snapshot(NodeState.empty(builders.node("n0", gpus=8)))

    refusal = Planner().decide(snapshot, PlacementRequest(request)).refusals["n0"]

    assert (refusal.reason, refusal.reason.preemptible) == (Reason.TOO_FEW_GPUS, False)


def hard_node(name, seed):
    """A node of which exactly as much is free as the hard request asks for."""
    chance = np.random.default_rng(seed)
    pieces = chance.multinomial(24, [1 / 8] * 8).tolist()
    held = [builders.piece(at, cores, 1) for at, cores in enumerate(pieces)]
    state = NodeState.empty(builders.node(name, gpus=8))
    return state.hold(builders.holding(f"{name}-held", *held))


def hard_request():
    """Containers that would have to fill every GPU to the last percent, three on each."""
    sizes = [26, 27, 28, 28, 29, 29, 29, 30, 30, 30, 31, 31, 31, 32, 32, 33, 34, 35, 36, 37, 38, 39]
    sizes += [40, 776 - sum(sizes) - 40]
    return builders.request(*([builders.share(size, 1)] for size in sizes))


def test_steps_of_a_decision_are_shared_by_all_nodes_and_their_end_is_told():
    states = [hard_node(f"n{at}", at) for at in range(60)]
    snapshot, names = builders.snapshot(*states), [state.node.name for state in states]
    wanted = PlacementRequest(hard_request())

    screening = Screener(NodeTables()).screen(snapshot, wanted, names)

    assert Reason.UNDECIDED in screening.reasons.values()
    decision = Planner().decide(snapshot, wanted)
    told = {name: refusal.reason for name, refusal in decision.refusals.items()}
    assert told == screening.reasons


def test_alike_nodes_are_searched_once():
    states = [hard_node(f"n{at}", 1) for at in range(40)]
    alone = Planner().decide(builders.snapshot(states[0]), PlacementRequest(hard_request()))

    decision = Planner().decide(builders.snapshot(*states), PlacementRequest(hard_request()))

    reasons = {refusal.reason for refusal in decision.refusals.values()}
    assert reasons == {refusal.reason for refusal in alone.refusals.values()}
