"""What holds of every decision, on random clusters and requests."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from slicewise.model import (
    WHOLE_GPU,
    Constraints,
    ContainerRequest,
    Nearness,
    NodeState,
    Request,
    Role,
    TopologyConstraint,
    charge,
)
from slicewise.placement import (
    POLICIES,
    UNLIMITED,
    PlacementRequest,
    Planner,
    Screener,
    Workload,
    feasible,
    preempt,
    shape_of,
)

MODELS = ("NVIDIA A100-SXM4-40GB", "Tesla T4", "NVIDIA A10")
MEMORY = {MODELS[0]: 40960, MODELS[1]: 15360, MODELS[2]: 24576}


@st.composite
def states(draw, name):
    models = draw(st.lists(st.sampled_from(MODELS), max_size=5))
    gpus = [
        builders.gpu(
            at,
            model=model,
            memory=MEMORY[model],
            uuid=f"GPU-{name}-{at}",
            healthy=draw(st.integers(0, 9)) > 0,
        )
        for at, model in enumerate(models)
    ]
    links = None
    if models and draw(st.booleans()):
        half = len(models) // 2
        groups = [group for group in (range(half), range(half, len(models))) if len(group)]
        links = builders.pairs_linked(*groups, nvlinks=draw(st.integers(0, 2)))
    host = builders.host(draw(st.sampled_from([2000, 8000])), 4096) if draw(st.booleans()) else None
    state = NodeState.empty(builders.node(name, gpus=gpus, links=links, host=host))
    for at, gpu in enumerate(gpus):
        if draw(st.booleans()):
            cores = draw(st.sampled_from([0, 20, 50, 90, 100]))
            memory = gpu.memory if cores == 100 else draw(st.sampled_from([1, 4096, 12000]))
            priority = draw(st.integers(0, 3))
            piece = builders.piece(at, cores, memory)
            state = state.hold(builders.holding(f"{name}-{at}", piece, priority=priority))
    return state


clusters = st.tuples(*(states(f"n{at}") for at in range(4))).map(lambda s: builders.snapshot(*s))

shares = st.one_of(
    st.just(WHOLE_GPU),
    st.builds(
        builders.share, st.sampled_from([0, 10, 30, 60]), st.sampled_from([1, 4096, 12000, 30000])
    ),
)
containers = st.tuples(
    st.lists(shares, min_size=1, max_size=3).flatmap(
        lambda asked: st.sampled_from([asked, [asked[0]] * len(asked)])
    ),
    st.sampled_from([Role.MAIN, Role.MAIN, Role.MAIN, Role.INIT, Role.SIDECAR]),
)
wishes = st.builds(
    Constraints,
    models=st.sampled_from([(), (), ("a100",), ("t4", "a10")]),
    models_refused=st.sampled_from([(), (), ("t4",)]),
    topology=st.sampled_from(
        [
            None,
            None,
            TopologyConstraint(Nearness.NVLINK),
            TopologyConstraint(Nearness.NVLINK, strict=True),
            TopologyConstraint(Nearness.PCIE, strict=True),
        ]
    ),
)


@st.composite
def requests(draw):
    asked = draw(st.lists(containers, max_size=3))
    named = tuple(
        ContainerRequest(f"c{at}", tuple(each), role) for at, (each, role) in enumerate(asked)
    )
    wish = draw(wishes)
    if len(named) > 1 or len(set(named[0].shares if named else ())) > 1:
        # Across containers a strict demand is met greedily; docs/limits.md says so.
        wish = replace(wish, topology=None)
    if len({len(each.shares) for each in named}) == 1:
        wish = replace(wish, together=draw(st.booleans()))
    host = builders.host(draw(st.sampled_from([0, 1000, 4000])))
    return Request(named, wish, host)


policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


def planner_for(policy, request):
    return Planner(policy, Workload.of([shape_of(request), shape_of(builders.fraction())]))


@settings(max_examples=200)
@given(clusters, requests(), policies)
def test_no_placement_overfills_a_gpu_or_takes_an_unhealthy_one(snapshot, request, policy):
    placement = planner_for(policy, request).place(snapshot, PlacementRequest(request))
    if placement is None:
        return
    state = snapshot.get(placement.allocation.node)
    charges = charge(request, placement.allocation)
    after = state.hold(builders.holding("new", *charges, host=request.host))
    for piece in charges:
        at = piece.gpu
        assert state.node.gpus[at].usable
        assert after.used_cores[at] <= 100
        assert after.used_memory[at] <= state.node.gpus[at].memory
        assert piece.cores < 100 or state.untouched(at)
    if state.node.host is not None:
        assert after.cpu <= state.node.host.cpu


@settings(max_examples=200)
@given(clusters, requests(), policies)
def test_every_container_gets_what_it_asked_for(snapshot, request, policy):
    placement = planner_for(policy, request).place(snapshot, PlacementRequest(request))
    if placement is None:
        return
    gpus = snapshot.get(placement.allocation.node).node.gpus
    for asked, given_ in zip(request.containers, placement.allocation.containers, strict=True):
        indexes = [piece.gpu for piece in given_.slices]
        assert len(set(indexes)) == len(indexes)
        for share, piece in zip(asked.shares, given_.slices, strict=True):
            assert piece.cores == share.cores
            assert piece.memory == (gpus[piece.gpu].memory if share.whole else share.memory)
    if request.constraints.together:
        assert len({tuple(p.gpu for p in c.slices) for c in placement.allocation.containers}) <= 1


@settings(max_examples=200)
@given(clusters, requests(), policies)
def test_a_node_is_refused_with_a_reason_exactly_when_it_cannot_take_the_pod(
    snapshot, request, policy
):
    decision = planner_for(policy, request).decide(snapshot, PlacementRequest(request))

    could = {state.node.name for state in snapshot if feasible(state, request, UNLIMITED)}
    assert set(decision.scores) == could
    assert set(decision.refusals) == set(snapshot.slots) - could
    assert all(refusal.detail for refusal in decision.refusals.values())
    assert (decision.placement is None) == (not could)


@settings(max_examples=200)
@given(st.lists(clusters, min_size=2, max_size=4), requests(), policies)
def test_what_a_planner_saw_before_does_not_change_its_answer(snapshots, request, policy):
    used = planner_for(policy, request)
    for snapshot in snapshots:
        used.place(snapshot, PlacementRequest(request))
    last = snapshots[-1]

    assert used.place(last, PlacementRequest(request)) == planner_for(policy, request).place(
        last, PlacementRequest(request)
    )


@settings(max_examples=200)
@given(clusters, requests())
def test_evicting_the_victims_really_makes_room(snapshot, request):
    eviction = preempt(snapshot, PlacementRequest(request), priority=2)

    if eviction is None:
        assert not any(feasible(state, request, UNLIMITED) for state in snapshot)
        return
    state = snapshot.get(eviction.node)
    for victim in eviction.victims:
        assert victim.priority < 2
        state = state.release(victim.uid)
    assert feasible(state, request, UNLIMITED)
    for spared in eviction.victims:
        assert not feasible(state.hold(spared), request, UNLIMITED)


@settings(max_examples=300)
@given(clusters, requests(), policies, st.permutations(["n0", "n1", "n2", "n3", "n9"]))
def test_screening_says_what_a_decision_says(snapshot, request, policy, names):
    planner = planner_for(policy, request)

    screening = Screener(planner.tables).screen(snapshot, PlacementRequest(request), names)

    decision = planner.decide(snapshot, PlacementRequest(request))
    fitting = [name for name, fits in zip(names, screening.fits, strict=True) if fits]
    assert fitting == [name for name in names if name in decision.scores]
    assert screening.unknown == ["n9"]
    assert screening.reasons == {name: no.reason for name, no in decision.refusals.items()}


@settings(max_examples=200)
@given(clusters, requests(), policies)
def test_asking_one_node_gives_what_asking_all_would_give_of_it(snapshot, request, policy):
    planner = planner_for(policy, request)
    for name in snapshot.slots:
        alone = planner.place_on(snapshot, PlacementRequest(request), name)
        among = planner.place(snapshot, PlacementRequest(request, nodes=[name]))

        assert (alone and alone.allocation) == (among and among.allocation)
