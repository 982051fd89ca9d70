"""What the ledger makes of events, one claim a test."""

from dataclasses import replace

import pytest

import builders
from fakes.reader import ALLOCATION, PlainReader, annotate
from slicewise.cluster import (
    Assume,
    Confirm,
    Expire,
    Forget,
    GpuHealth,
    Ledger,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from slicewise.model import Allocation, ContainerAllocation, Phase, Request


def allocated(*pieces, node="n0") -> Allocation:
    return Allocation(node, (ContainerAllocation("c0", pieces),))


def bound(uid="u0", request: Request | None = None, allocation=None, **facts):
    request = request or builders.fraction(30, 4096)
    facts = {"node": "n0", "name": uid, **facts}
    return builders.pod(uid=uid, annotations=annotate(request, allocation), **facts)


def assume(uid="u0", request=None, allocation=None, deadline=10.0) -> Assume:
    return Assume(
        uid,
        "default",
        uid,
        request or builders.fraction(30, 4096),
        allocation or allocated(builders.piece(0, 30, 4096)),
        deadline,
    )


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger(PlainReader())
    ledger.apply(NodeSeen(builders.node("n0", gpus=2), version=1))
    return ledger


def used(ledger: Ledger, node="n0"):
    state = ledger.snapshot().get(node)
    return state.used_cores, state.used_memory


HELD = ((30, 0), (4096, 0))
EMPTY = ((0, 0), (0, 0))


def test_bound_pod_is_charged_by_its_marks(ledger):
    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(0, 30, 4096)))))

    assert used(ledger) == HELD


def test_deletion_that_merely_started_frees_nothing(ledger):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)))
    ledger.apply(PodSeen(pod))

    ledger.apply(PodSeen(replace(pod, deleting=True, version=2)))

    assert used(ledger) == HELD


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_terminal_pod_is_freed_and_a_stale_running_event_does_not_revive_it(ledger, phase):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)), version=3)
    ledger.apply(PodSeen(pod))

    ledger.apply(PodSeen(replace(pod, phase=phase, version=5)))
    ledger.apply(PodSeen(replace(pod, phase=Phase.RUNNING, version=4)))

    assert used(ledger) == EMPTY


def test_gone_pod_stays_gone_when_its_old_event_comes_late(ledger):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)))

    ledger.apply(PodGone("u0"))

    assert not ledger.apply(PodSeen(pod))
    assert used(ledger) == EMPTY


def test_same_name_with_new_uid_is_another_pod(ledger):
    ledger.apply(PodSeen(bound("u0", allocation=allocated(builders.piece(0)), name="web-0")))
    ledger.apply(PodSeen(bound("u1", allocation=allocated(builders.piece(1)), name="web-0")))

    ledger.apply(PodGone("u0"))

    assert used(ledger) == ((0, 30), (0, 4096))


def test_older_version_does_not_undo_a_newer_one(ledger):
    new = bound(allocation=allocated(builders.piece(1)), version=7)
    ledger.apply(PodSeen(new))

    assert not ledger.apply(PodSeen(replace(new, node=None, version=6)))
    assert used(ledger) == ((0, 30), (0, 4096))


def test_assumed_share_is_counted_until_its_deadline(ledger):
    ledger.apply(assume(deadline=10.0))
    ledger.apply(Expire(9.9))
    assert used(ledger) == HELD

    ledger.apply(Expire(10.0))
    assert used(ledger) == EMPTY


def test_confirmed_share_outlives_its_deadline(ledger):
    ledger.apply(assume(deadline=10.0))
    ledger.apply(Confirm("u0"))

    ledger.apply(Expire(99.0))

    assert used(ledger) == HELD


def test_forgotten_share_is_free_again(ledger):
    ledger.apply(assume())

    ledger.apply(Forget("u0"))

    assert used(ledger) == EMPTY


def test_forget_does_not_touch_a_pod_the_api_shows_bound(ledger):
    ledger.apply(assume())
    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(0, 30, 4096)))))

    ledger.apply(Forget("u0"))

    assert used(ledger) == HELD


def test_the_api_beats_what_was_assumed(ledger):
    ledger.apply(assume())

    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(1, 30, 4096)))))

    assert used(ledger) == ((0, 30), (0, 4096))


def test_assumption_that_does_not_fit_is_refused(ledger):
    whole = builders.whole(1)
    assert ledger.apply(assume("u0", whole, allocated(builders.piece(0, 100, 40960))))

    assert not ledger.apply(assume("u1", allocation=allocated(builders.piece(0, 1, 1))))
    assert used(ledger) == ((100, 0), (40960, 0))


def test_whole_gpu_is_refused_on_a_gpu_of_which_only_memory_is_held(ledger):
    memory_only = builders.request([builders.share(0, 1024)])
    ledger.apply(assume("u0", memory_only, allocated(builders.piece(0, 0, 1024))))

    assert not ledger.apply(
        assume("u1", builders.whole(1), allocated(builders.piece(0, 100, 40960)))
    )


def test_assuming_again_moves_the_share(ledger):
    ledger.apply(assume())

    ledger.apply(assume(allocation=allocated(builders.piece(1, 30, 4096))))

    assert used(ledger) == ((0, 30), (0, 4096))


@pytest.mark.parametrize("mark", ["not json", None])
def test_pod_with_unreadable_record_is_charged_to_every_gpu_and_reported(ledger, mark):
    record = annotate(builders.fraction(30, 4096)) | ({} if mark is None else {ALLOCATION: mark})
    ledger.apply(PodSeen(builders.pod(uid="u0", node="n0", annotations=record)))

    assert used(ledger) == ((30, 30), (4096, 4096))
    assert [problem.subject for problem in ledger.problems()] == ["default/p0"]


def test_pod_is_understood_once_its_marks_can_be_read(ledger):
    ledger.apply(PodSeen(bound(version=1)))
    assert ledger.problems()

    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(0, 30, 4096)), version=2)))

    assert used(ledger) == HELD
    assert not ledger.problems()


def test_bound_pod_with_unreadable_request_costs_its_limits_on_every_gpu(ledger):
    unread = builders.pod(limits={"cores": 40}, node="n0", annotations={"test/request": "?"})

    ledger.apply(PodSeen(unread))

    assert used(ledger) == ((40, 40), (0, 0))
    assert ledger.problems()[0].trouble == "UnreadableRequest"


def test_bound_pod_that_names_no_gpu_costs_none_though_it_cannot_be_read(ledger):
    ledger.apply(PodSeen(builders.pod(uid="u0", node="n0", annotations={"test/request": "?"})))

    assert used(ledger) == EMPTY


def test_over_commitment_found_at_take_over_is_counted_and_reported(ledger):
    for uid in ("u0", "u1"):
        ledger.apply(PodSeen(bound(uid, allocation=allocated(builders.piece(0, 70, 30000)))))

    assert used(ledger) == ((140, 0), (60000, 0))
    assert "140 of 100 percent and 60000 of 40960 MiB" in ledger.problems()[0].detail
    assert not ledger.apply(assume("u2", allocation=allocated(builders.piece(0, 1, 1))))


def test_pod_seen_before_its_node_is_charged_when_the_node_comes(ledger):
    ledger.apply(PodSeen(bound(node="n9", allocation=allocated(builders.piece(1), node="n9"))))

    ledger.apply(NodeSeen(builders.node("n9", gpus=2), version=1))

    assert used(ledger, "n9") == ((0, 30), (0, 4096))


def test_node_that_returns_finds_its_pods_again(ledger):
    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(0, 30, 4096)))))
    ledger.apply(NodeGone("n0", version=2))
    assert "n0" not in ledger.snapshot()

    ledger.apply(NodeSeen(builders.node("n0", gpus=2), version=3))

    assert used(ledger) == HELD


def test_stale_node_event_does_not_bring_a_deleted_node_back(ledger):
    ledger.apply(NodeGone("n0", version=5))

    assert not ledger.apply(NodeSeen(builders.node("n0", gpus=2), version=4))
    assert "n0" not in ledger.snapshot()


def test_unhealthy_gpu_takes_nothing_new_and_keeps_what_it_holds(ledger):
    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(0, 30, 4096)))))

    ledger.apply(GpuHealth("n0", "GPU-n0-0", healthy=False))

    assert used(ledger) == HELD
    assert not ledger.apply(assume("u1"))
    ledger.apply(GpuHealth("n0", "GPU-n0-0", healthy=True))
    assert ledger.apply(assume("u1"))


def test_unbound_pod_marked_for_a_node_is_counted_there(ledger):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)), node=None)

    ledger.apply(PodSeen(pod))

    assert used(ledger) == HELD


def test_unbound_pod_with_stale_marks_can_be_decided_again(ledger):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)), node=None)
    ledger.apply(PodSeen(pod))

    assert ledger.apply(assume(allocation=allocated(builders.piece(1, 30, 4096))))
    assert used(ledger) == ((0, 30), (0, 4096))


def test_snapshot_is_not_changed_by_later_events(ledger):
    before = ledger.snapshot()

    ledger.apply(assume())

    assert before.get("n0").used_cores == (0, 0)
    assert ledger.snapshot() is ledger.snapshot()


def test_grown_node_keeps_its_holdings(ledger):
    ledger.apply(PodSeen(bound(allocation=allocated(builders.piece(1, 30, 4096)))))

    ledger.apply(NodeSeen(builders.node("n0", gpus=4), version=2))

    assert used(ledger)[0] == (0, 30, 0, 0)


def test_status_update_of_a_bound_pod_changes_nothing(ledger):
    pod = bound(allocation=allocated(builders.piece(0, 30, 4096)))
    ledger.apply(PodSeen(pod))
    before = ledger.snapshot()

    assert ledger.apply(PodSeen(replace(pod, phase=Phase.RUNNING, version=9)))

    assert ledger.snapshot() is before
