"""Defects of the replaced systems in counting, each shown absent here."""

from dataclasses import replace

import pytest

import builders
from fakes.reader import PlainReader, annotate
from slicewise.cluster import (
    Assume,
    Confirm,
    Forget,
    Ledger,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from slicewise.cluster import ledger as ledger_module
from slicewise.model import Allocation, ContainerAllocation, Phase
from slicewise.placement import POLICIES, PlacementRequest, Planner

SHARE = builders.fraction(60, 4096)


def on(gpu, node="n0", cores=60):
    piece = builders.piece(gpu, cores, 4096)
    return Allocation(node, (ContainerAllocation("c0", (piece,)),))


def assume(uid, gpu=0):
    return Assume(uid, "default", uid, SHARE, on(gpu), deadline=30.0)


def bound(uid, gpu=0, **facts):
    facts = {"name": uid, "node": "n0", **facts}
    return builders.pod(uid=uid, annotations=annotate(SHARE, on(gpu)), **facts)


@pytest.fixture
def ledger():
    ledger = Ledger(PlainReader())
    ledger.apply(NodeSeen(builders.node("n0", gpus=2), version=1))
    return ledger


def cores(ledger, node="n0"):
    return ledger.snapshot().get(node).used_cores


def test_defect_tkestack_2_a_decision_counts_before_the_watch_shows_it(ledger):
    planner = Planner(POLICIES["binpack"])
    first = planner.place(ledger.snapshot(), PlacementRequest(SHARE)).allocation
    ledger.apply(Assume("u0", "default", "u0", SHARE, first, deadline=30.0))

    second = planner.place(ledger.snapshot(), PlacementRequest(SHARE)).allocation

    assert first.gpus != second.gpus


def test_defect_tkestack_1_a_pod_that_failed_after_its_decision_is_decided_again(ledger):
    ledger.apply(PodSeen(bound("u0", node=None)))

    assert ledger.apply(assume("u0", gpu=1))
    assert cores(ledger) == (0, 60)


def test_defect_gpushare_3_node_state_follows_a_changed_node(ledger):
    ledger.apply(NodeSeen(builders.node("n0", gpus=4, memory=81920), version=2))

    state = ledger.snapshot().get("n0")
    assert len(state.used_cores) == 4
    assert state.free_memory(3) == 81920


def test_defect_gpushare_3_deleted_node_does_not_stay(ledger):
    ledger.apply(NodeGone("n0", version=2))

    assert "n0" not in ledger.snapshot()


@pytest.mark.parametrize("defect", ["gpushare_5", "elastic_s10"])
def test_defect_memory_is_kept_while_a_pod_is_only_being_deleted(ledger, defect):
    ledger.apply(PodSeen(bound("u0")))

    ledger.apply(PodSeen(replace(bound("u0"), deleting=True, version=2)))
    assert cores(ledger) == (60, 0)

    ledger.apply(PodGone("u0"))
    assert cores(ledger) == (0, 0)


def test_defect_gpushare_6_recreated_pod_of_the_same_name_leaks_nothing(ledger):
    ledger.apply(PodSeen(bound("old", name="web-0")))
    ledger.apply(PodSeen(bound("new", gpu=1, name="web-0")))

    ledger.apply(PodGone("old"))

    assert cores(ledger) == (0, 60)


def test_defect_gpushare_11_failed_binding_leaves_nothing_counted(ledger):
    ledger.apply(assume("u0"))

    ledger.apply(Forget("u0"))

    assert cores(ledger) == (0, 0)


def test_defect_gpushare_23_pod_that_bypassed_the_extender_is_counted(ledger):
    unmarked = builders.pod(uid="u0", node="n0", annotations=annotate(SHARE))

    ledger.apply(PodSeen(unmarked))

    assert cores(ledger) == (60, 60)
    assert ledger.problems()


def test_defect_elastic_s4_refused_charge_leaves_nothing_behind(ledger):
    ledger.apply(PodSeen(bound("u0")))

    assert not ledger.apply(assume("u1", gpu=0))
    assert not ledger.apply(Confirm("u1"))
    assert cores(ledger) == (60, 0)


def test_defect_elastic_s5_failed_bind_is_refunded(ledger):
    ledger.apply(assume("u0"))
    ledger.apply(Forget("u0"))

    assert ledger.apply(assume("u1"))


def test_defect_elastic_s6_a_plan_for_an_old_state_is_refused_at_assume(ledger):
    stale = (
        Planner(POLICIES["binpack"]).place(ledger.snapshot(), PlacementRequest(SHARE)).allocation
    )
    ledger.apply(PodSeen(bound("u0", gpu=stale.gpus[0])))

    assert not ledger.apply(Assume("u1", "default", "u1", SHARE, stale, deadline=30.0))


def test_defect_elastic_s7_release_needs_no_annotations(ledger):
    ledger.apply(PodSeen(bound("u0")))

    ended = builders.pod(uid="u0", node="n0", phase=Phase.SUCCEEDED, version=2)
    ledger.apply(PodSeen(ended))

    assert cores(ledger) == (0, 0)


def test_defect_elastic_s8_node_is_refreshed_when_it_changes(ledger):
    ledger.apply(PodSeen(bound("u0", gpu=1)))

    ledger.apply(NodeSeen(builders.node("n0", gpus=3), version=2))

    assert cores(ledger) == (0, 60, 0)


def test_defect_elastic_s12_memory_of_ended_pods_is_bounded(ledger, monkeypatch):
    monkeypatch.setattr(ledger_module, "_REMEMBERED", 10)

    for at in range(100):
        ledger.apply(PodGone(f"u{at}"))

    assert len(ledger._ended) == 10


def test_defect_gpuscheduler_n7_completed_pod_frees_its_gpus(ledger):
    ledger.apply(PodSeen(bound("u0")))

    ledger.apply(PodSeen(replace(bound("u0"), phase=Phase.SUCCEEDED, version=2)))

    assert cores(ledger) == (0, 0)


def test_defect_gpuscheduler_n11_last_gpu_is_allocated_once(ledger):
    whole = builders.whole(2)
    pieces = (builders.piece(0, 100, 40960), builders.piece(1, 100, 40960))
    both = Allocation("n0", (ContainerAllocation("c0", pieces),))

    assert ledger.apply(Assume("u0", "default", "u0", whole, both, deadline=30.0))
    assert not ledger.apply(Assume("u1", "default", "u1", whole, both, deadline=30.0))
