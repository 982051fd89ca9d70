"""Room kept for pods that wait long: for whom, until when, and what they are told."""

import asyncio
from dataclasses import replace

import pytest

import builders
from extender.test_evictor import MEMORY, WHOLE, share
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import PodGone
from slicewise.dialects.own.pods import KEPT
from slicewise.explain.answer_text import describe
from slicewise.explain.explanation import PodInquiry, explain_pod
from slicewise.extender.decisions import Decisions
from slicewise.extender.evictor import Evictor
from slicewise.extender.fair_keeper import Clocks, FairKeeper
from slicewise.placement.fairness import FairRules
from slicewise.state.queries import PodQueries

HALF = {"slicewise.io/cores": 50, "slicewise.io/memory": MEMORY // 2}


class Queueing:
    """A node of two GPUs with a share on each, and rules of 100 seconds after 60."""

    def __init__(self):
        self.now, self.freed = 1000.0, 0
        self.state = FakeState(builders.node("a", gpus=2))
        self.state.see(share("x", 0), share("y", 1))
        self.writer = FakeWriter()
        self.verbs = Decisions(PodQueries(self.state), lambda: self.now)
        clocks = Clocks(lambda: self.now, lambda: self.now)
        self.keeper = FairKeeper(
            self.verbs, self.writer, FairRules(60.0, 100.0), freed=self.note_freed, clocks=clocks
        )

    def note_freed(self):
        self.freed += 1

    def refuse(self, name, *, created=1000, priority=0, limits=WHOLE):
        facts = {"created": created, "priority": priority, "limits": limits}
        pod = builders.pod(uid=name, name=name, **facts)
        self.state.see(pod)
        self.writer.add(pod)
        self.keeper.note_refusal(pod, ["a"])
        return pod

    def pass_time(self, seconds):
        self.now += seconds
        self.state.expire(self.now)
        asyncio.run(self.keeper.look())

    def end(self, uid):
        self.state.ledger.apply(PodGone(uid))
        self.verbs.nominations.on_pods(())

    def kept(self):
        """Who has room kept, and how much of each GPU."""
        state = self.state.snapshot().get("a")
        return {
            each.uid.partition("@")[0]: [(piece.gpu, piece.cores) for piece in each.charges]
            for each in state.holdings
            if each.tentative
        }

    def fits(self, limits):
        pod = builders.pod(uid="probe", name="probe", limits=limits)
        return self.verbs.screen(self.verbs.queries.build(pod), ["a"]).fits == [True]


@pytest.fixture
def cluster():
    return Queueing()


def test_free_part_is_kept_past_the_waiting_time_and_all_of_it_in_the_end(cluster):
    waiting = cluster.refuse("waits")

    cluster.pass_time(59.0)
    assert cluster.kept() == {}
    cluster.pass_time(1.0)
    ((gpu, cores),) = cluster.kept()["waits"]
    assert cores == 50
    cluster.end("xy"[gpu])

    assert cluster.kept() == {"waits": [(gpu, 100)]}
    query = cluster.verbs.queries.build(waiting)
    assert cluster.verbs.screen(query, ["a"]).fits == [True]
    assert not cluster.fits(WHOLE)


def test_pod_is_told_by_an_event_and_an_annotation(cluster):
    cluster.refuse("waits")
    cluster.pass_time(60.0)

    ((name, event),) = cluster.writer.events
    told = cluster.writer.pods["default", "waits"].annotations[KEPT]
    assert (name, event.reason) == ("waits", "RoomKept")
    assert told.startswith("on node a until 1970-01-01T00:19:20Z, as soon as 1 pod end")


def test_why_shows_the_room_that_is_kept(cluster):
    cluster.refuse("waits")
    cluster.pass_time(60.0)
    query = cluster.verbs.queries.build(cluster.writer.pods["default", "waits"])

    answer = explain_pod(PodInquiry.of(query, ["a"], cluster.verbs.screen(query, ["a"])))

    assert "room is kept for it on node a until" in "\n".join(describe(answer))


def test_room_is_given_back_at_the_deadline_and_the_next_pod_has_its_turn(cluster):
    cluster.refuse("first", created=900)
    cluster.refuse("second", created=950)
    cluster.pass_time(60.0)
    assert list(cluster.kept()) == ["first"]

    cluster.pass_time(99.0)
    assert list(cluster.kept()) == ["first"]
    cluster.pass_time(1.0)

    assert list(cluster.kept()) == ["second"]
    assert "waits again" in cluster.writer.pods["default", "first"].annotations[KEPT]


def test_one_reservation_leaves_all_other_room_to_others(cluster):
    for name in ("a0", "a1", "a2"):
        cluster.refuse(name, created=1)

    cluster.pass_time(1.0)

    assert len(cluster.kept()) == 1
    assert cluster.fits(HALF)


def test_bound_pod_keeps_nothing_and_the_next_one_follows(cluster):
    cluster.refuse("first", created=1)
    cluster.refuse("second", created=2)
    cluster.pass_time(1.0)

    cluster.end("first")
    cluster.pass_time(1.0)

    assert list(cluster.kept()) == ["second"]


def test_refused_pod_of_higher_priority_ends_it_and_others_are_woken(cluster):
    cluster.refuse("waits", created=1)
    cluster.pass_time(1.0)
    cluster.refuse("as-important")
    assert list(cluster.kept()) == ["waits"]

    cluster.refuse("urgent", priority=10)

    assert (cluster.kept(), cluster.freed) == ({}, 1)


def test_victims_are_not_kept_from_urgent_pods(cluster):
    cluster.refuse("waits", created=1)
    cluster.pass_time(1.0)

    assert cluster.verbs.nominations.taken("urgent") == frozenset()


def test_refusals_reach_the_keeper_by_way_of_the_evictor(cluster):
    evictor = Evictor(cluster.verbs, cluster.writer, clock=lambda: cluster.now)
    evictor.fairness = cluster.keeper
    pod = builders.pod(uid="p", name="p", limits=WHOLE, created=7)
    cluster.state.see(pod)

    evictor.note_refusal(replace(pod, created=1), ["a"])
    evictor.note_refusal(replace(pod, uid="unknown"), ["a"])

    assert cluster.keeper.queue.due(66.0) == []
    assert cluster.keeper.queue.due(67.0) == ["p"]
