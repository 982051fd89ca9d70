"""Several GPUs are taken where they stand nearest, as gpu-manager's tree does it."""

import pytest

import builders
from slicewise.model import (
    WHOLE_GPU,
    Constraints,
    ContainerRequest,
    MiB,
    Nearness,
    NodeState,
    Percent,
    Role,
    Share,
    TopologyConstraint,
)
from slicewise.placement import POLICIES, PlacementRequest, Planner

# Six GPUs: 0-1 and 2-3 each behind a switch, both under one bridge; 4-5 behind another.
PCIE = (
    (0, 10, 30, 30, 40, 40),
    (10, 0, 30, 30, 40, 40),
    (30, 30, 0, 10, 40, 40),
    (30, 30, 10, 0, 40, 40),
    (40, 40, 40, 40, 0, 10),
    (40, 40, 40, 40, 10, 0),
)


def tree(*occupied):
    links = builders.pairs_linked((0, 1, 2, 3, 4, 5))
    links = type(links)(links.nvlinks, PCIE)
    state = NodeState.empty(builders.node(gpus=6, links=links))
    for gpu in occupied:
        state = state.hold(builders.holding(f"u{gpu}", builders.piece(gpu, 100, 40960)))
    return state


def take(state, count, wish=None):
    request = builders.request([WHOLE_GPU] * count, constraints=Constraints(topology=wish))
    placement = Planner(POLICIES["binpack"]).place(
        builders.snapshot(state), PlacementRequest(request)
    )
    return None if placement is None else list(placement.allocation.gpus)


@pytest.mark.parametrize(
    ("occupied", "count", "taken"),
    [
        pytest.param((), 3, [0, 1, 2], id="three-near-each-other"),
        pytest.param((2,), 2, [0, 1], id="a-pair-behind-one-switch"),
        pytest.param((4,), 1, [5], id="one-gpu-breaks-no-pair"),
        pytest.param((), 1, [4], id="one-gpu-from-the-smallest-group"),
        pytest.param((0,), 2, [2, 3], id="a-whole-pair-first"),
    ],
)
def test_whole_gpus_are_the_nearest(occupied, count, taken):
    assert take(tree(*occupied), count) == taken


def test_nvlink_beats_pcie():
    links = builders.pairs_linked((0, 1), (2, 3))
    nvlinks = ((0, 0, 4, 0), (0, 0, 0, 0), (4, 0, 0, 0), (0, 0, 0, 0))
    node = builders.node(gpus=4, links=type(links)(nvlinks, links.pcie))

    assert take(NodeState.empty(node), 2) == [0, 2]


def test_strict_wish_refuses_what_a_preference_accepts():
    state = tree(1, 3, 5)

    assert take(state, 2, TopologyConstraint(Nearness.PCIE, strict=True)) == [0, 2]
    assert take(state, 3, TopologyConstraint(Nearness.PCIE, strict=True)) is None
    assert take(state, 3, TopologyConstraint(Nearness.PCIE, strict=False)) == [0, 2, 4]


def test_wish_prefers_the_node_that_can_fulfil_it():
    far = builders.node("a", gpus=2)
    near = builders.node("b", gpus=2, links=builders.pairs_linked((0, 1), nvlinks=2))
    wish = Constraints(topology=TopologyConstraint(Nearness.NVLINK))

    placement = Planner(POLICIES["binpack"]).place(
        builders.snapshot(far, near),
        PlacementRequest(builders.request([WHOLE_GPU] * 2, constraints=wish)),
    )

    assert placement.allocation.node == "b"


def test_numa_decides_where_links_are_unknown():
    gpus = [builders.gpu(at, numa=at % 2) for at in range(4)]

    assert take(NodeState.empty(builders.node(gpus=gpus)), 2) == [0, 2]


def test_sixteen_gpus_are_chosen_without_trying_every_set():
    links = builders.pairs_linked(tuple(range(8)), tuple(range(8, 16)))

    assert take(NodeState.empty(builders.node(gpus=16, links=links)), 8) == list(range(8))


def test_gpus_of_a_node_do_not_depend_on_the_nodes_beside_it():
    linked = builders.node(
        "linked",
        gpus=[builders.gpu(at, healthy=False) for at in range(2)],
        links=builders.pairs_linked((0, 1)),
    )
    mixed = builders.node(
        "mixed", gpus=[builders.gpu(0), builders.gpu(1, memory=15360), builders.gpu(2)]
    )
    memory = Share(Percent(0), MiB(30000))
    request = builders.request(
        [WHOLE_GPU, memory], ContainerRequest("init", (WHOLE_GPU, WHOLE_GPU, memory), Role.INIT)
    )

    def place(*nodes):
        planner = Planner(POLICIES["best-fit"])
        return planner.place(builders.snapshot(*nodes), PlacementRequest(request)).allocation

    assert place(linked, mixed) == place(mixed)
