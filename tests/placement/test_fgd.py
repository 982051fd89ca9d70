"""Fragmentation as it is defined, on the worked example of its definition."""

import numpy as np
import pytest

import builders
from slicewise.model import NodeState
from slicewise.placement import POLICIES, NodeTables, PlacementRequest, Planner, PodShape, Workload
from slicewise.placement.scoring.fgd import FragmentationTable

WORKLOAD = Workload({PodShape(4000, 50, 1): 5, PodShape(8000, 100, 1): 3, PodShape(2000): 2})


def example() -> NodeState:
    node = builders.node(gpus=2, host=builders.host(6000))
    return NodeState.empty(node).hold(
        builders.holding("u", builders.piece(0, 30, 0), builders.piece(1, 70, 0))
    )


def test_fragmentation_of_the_worked_example():
    tables = NodeTables()
    tables.sync(builders.snapshot(example()))
    fragments = FragmentationTable(tables, WORKLOAD)
    fragments.refresh()

    assert fragments.amount == pytest.approx([650.0])
    assert fragments.grades(1, 30, 2000).tolist() == [[48, 57]]


def test_fgd_takes_the_gpu_of_the_worked_example():
    request = builders.request([builders.share(30)], host=builders.host(2000))
    planner = Planner(POLICIES["fgd"], WORKLOAD)

    placement = planner.place(builders.snapshot(example()), PlacementRequest(request))

    assert placement.allocation.gpus == (1,)
    assert placement.score == 57


def test_target_is_the_most_frequent_kinds_up_to_95_percent():
    workload = Workload({PodShape(1, 10, 1): 90, PodShape(2, 10, 1): 5, PodShape(3, 10, 1): 5})

    assert [kind.cpu for kind, _ in workload.target] == [1, 3]
    assert [weight for _, weight in workload.target] == pytest.approx([90 / 95, 5 / 95])


def test_cached_grades_follow_the_tables():
    tables, fresh = NodeTables(), NodeTables()
    empty = NodeState.empty(builders.node(gpus=2, host=builders.host(9000)))
    snapshot = builders.snapshot(empty)
    tables.sync(snapshot)
    fragments = FragmentationTable(tables, WORKLOAD)
    fragments.refresh()
    fragments.grades(1, 30, 1000)

    later = type(snapshot)(
        ((empty.hold(builders.holding("u", builders.piece(0, 60, 0))),),), snapshot.slots
    )
    tables.sync(later)
    fragments.refresh()
    fresh.sync(later)
    other = FragmentationTable(fresh, WORKLOAD)
    other.refresh()

    assert np.array_equal(fragments.grades(1, 30, 1000), other.grades(1, 30, 1000))
