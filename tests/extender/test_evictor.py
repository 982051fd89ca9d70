"""Evictions for refused pods: who must go, who is spared, and for whom the room is kept."""

import asyncio
import json
from dataclasses import replace

import pytest

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import PodGone
from slicewise.dialects.own.pods import FREED
from slicewise.extender.decisions import Decisions
from slicewise.extender.evictor import AFTER_SECONDS, Evictor
from slicewise.extender.protocol import Victims
from slicewise.kube.outcomes import WriteStatus
from slicewise.state.queries import PodQueries

MEMORY = 40960
WHOLE = {"slicewise.io/gpu": 1}


class Crowded:
    """A node of two GPUs with a share on each, so that the sum suffices and no GPU does."""

    def __init__(self, *shares):
        self.now = 0.0
        self.state = FakeState(builders.node("a", gpus=2))
        self.writer = FakeWriter()
        self.verbs = Decisions(PodQueries(self.state), lambda: self.now)
        self.evictor = Evictor(self.verbs, self.writer, clock=lambda: self.now)
        self.shares = {each.uid: each for each in shares or (share("x", 0), share("y", 1))}
        self.state.see(*self.shares.values())

    def refuse(self, name="urgent", priority=10, **facts):
        limits = facts.pop("limits", WHOLE)
        pod = builders.pod(uid=name, name=name, priority=priority, limits=limits, **facts)
        self.state.see(pod)
        assert not self.fits(pod)
        self.evictor.note_refusal(pod, ["a"])
        return pod

    def look(self, seconds=AFTER_SECONDS):
        self.now += seconds
        asyncio.run(self.evictor.look())
        return self.writer.evicted

    def delete(self, uid):
        """Deletion of the pod has begun."""
        self.see(uid, deleting=True)

    def see(self, uid, **facts):
        at = self.shares[uid]
        self.state.see(replace(at, version=at.version + 1, **facts))
        self.verbs.nominations.on_pods(())

    def end(self, uid):
        self.state.ledger.apply(PodGone(uid))
        self.verbs.nominations.on_pods(())

    def fits(self, pod):
        return self.verbs.screen(self.verbs.queries.build(pod), ["a"]).fits == [True]


def share(name, gpu, priority=0, cores=50):
    memory = MEMORY * cores // 100
    record = {"node": "a", "containers": {"c0": [[gpu, f"GPU-a-{gpu}", cores, memory]]}}
    limits = {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
    annotations = {"slicewise.io/allocation": json.dumps(record)}
    facts = {"annotations": annotations, "priority": priority, "version": 1}
    return builders.pod(uid=name, name=name, limits=limits, node="a", **facts)


def half(name, **facts):
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": MEMORY // 2}
    return builders.pod(uid=name, name=name, limits=limits, **facts)


def test_least_important_share_makes_room_after_a_moment():
    cluster = Crowded(share("x", 0, priority=5), share("y", 1, priority=1))
    cluster.refuse()

    assert cluster.look(AFTER_SECONDS / 2) == []
    assert cluster.look() == ["y"]
    told = [(name, event.reason) for name, event in cluster.writer.events]
    assert told == [("y", "Preempted"), ("urgent", "Preempting")]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"priority": 0}, id="no-higher-priority"),
        pytest.param({"preempts": False}, id="preemption-policy-never"),
        pytest.param({"limits": {"slicewise.io/gpu": 3}}, id="too-large-for-the-node"),
    ],
)
def test_nobody_is_evicted_for_a_pod_that_may_not_or_cannot_be_helped(facts):
    cluster = Crowded()
    cluster.refuse(**facts)

    assert cluster.look() == []


def test_pod_that_the_scheduler_evicts_for_is_left_to_it():
    cluster = Crowded()
    pod = cluster.refuse()
    cluster.evictor.forget(pod.uid)

    assert cluster.look() == []


def test_pod_that_fits_by_now_needs_nobody_and_is_woken():
    cluster = Crowded()
    cluster.writer.add(cluster.refuse(priority=0))
    cluster.end("x")

    assert cluster.look() == []
    assert FREED not in cluster.writer.pods["default", "urgent"].annotations
    assert cluster.look() == []
    assert FREED in cluster.writer.pods["default", "urgent"].annotations


def test_pod_is_woken_when_its_last_victim_is_seen_to_end_after_the_scheduler_has_asked():
    cluster = Crowded()
    cluster.writer.add(cluster.refuse())
    (victim,) = cluster.look()

    assert FREED not in cluster.writer.pods["default", "urgent"].annotations
    cluster.end(victim)
    cluster.look()
    cluster.look()

    assert FREED in cluster.writer.pods["default", "urgent"].annotations


def test_nobody_is_evicted_where_that_is_turned_off():
    cluster = Crowded()
    cluster.evictor = Evictor(cluster.verbs, cluster.writer, clock=lambda: cluster.now, evict=False)
    cluster.refuse()

    assert cluster.look() == []


def test_free_part_of_the_gpu_is_kept_as_soon_as_its_victim_was_chosen():
    cluster = Crowded(share("x", 0), share("y", 1, priority=20))
    urgent = cluster.refuse()
    cluster.look()
    late = half("late")
    cluster.state.see(late)

    before = {gpu: cluster.state.snapshot().get("a").free_cores(gpu) for gpu in (0, 1)}
    cluster.end("x")

    assert before == {0: 0, 1: 50}
    assert cluster.fits(urgent)
    assert not cluster.fits(builders.pod(uid="other", name="other", limits=WHOLE))


def test_urgent_pods_do_not_share_victims():
    cluster = Crowded()
    for name in ("first", "second", "third"):
        cluster.refuse(name)

    assert sorted(cluster.look()) == ["x", "y"]


def test_more_important_pod_is_helped_first():
    cluster = Crowded(share("x", 0), share("y", 1, priority=50))
    cluster.refuse("urgent", 10)
    cluster.refuse("more-urgent", 20)

    cluster.look()

    assert [name for name, event in cluster.writer.events if event.reason == "Preempting"] == [
        "more-urgent"
    ]


def test_pod_that_leaves_anyway_is_waited_for():
    cluster = Crowded()
    cluster.delete("x")
    urgent = cluster.refuse()

    assert cluster.look() == []
    assert cluster.verbs.nominations.awaits(urgent.uid)
    assert cluster.verbs.nominations.taken("other") == {"x"}


def test_room_is_kept_for_as_long_as_the_victim_takes_to_leave():
    cluster = Crowded()
    urgent = cluster.refuse()
    cluster.look()
    (victim,) = cluster.writer.evicted
    cluster.delete(victim)

    for _ in range(20):
        cluster.now += 30.0
        cluster.state.expire(cluster.now)
        cluster.verbs.nominations.renew()
    cluster.end(victim)

    assert cluster.fits(urgent)
    assert not cluster.fits(builders.pod(uid="late", name="late", limits=WHOLE))


def test_pod_that_should_be_gone_long_ago_is_not_waited_for():
    cluster = Crowded()
    cluster.see("x", deleting=True, ends=1)
    cluster.refuse()

    assert cluster.look() == ["y"]


def test_protected_pods_are_spared_and_others_go():
    cluster = Crowded(share("x", 0), share("y0", 1, cores=30), share("y1", 1, cores=30))
    cluster.writer.protected = {"x"}
    cluster.refuse()

    assert sorted(cluster.look()) == ["y0", "y1"]


def test_nobody_is_evicted_where_one_of_the_set_is_protected_and_that_is_told():
    cluster = Crowded(share("x", 0), share("y0", 1, cores=30), share("y1", 1, cores=30))
    cluster.writer.protected = {"x", "y1"}
    cluster.refuse()

    assert cluster.look() == []
    ((name, event),) = cluster.writer.events
    assert (name, event.reason) == ("urgent", "PreemptionBlocked")
    cluster.writer.protected = set()
    assert cluster.look(2.0) == ["x"]


def test_eviction_that_fails_after_all_leads_to_another_attempt():
    cluster = Crowded()
    cluster.refuse()
    cluster.writer.answers = [WriteStatus.BLOCKED]

    assert cluster.look() == ["x"]
    assert cluster.look(2.0) == ["x", "x"]


def test_scheduler_is_asked_for_no_victims_while_room_is_being_made():
    cluster = Crowded()
    urgent = cluster.refuse()
    (victim,) = cluster.look()
    cluster.delete(victim)
    other = ({"x", "y"} - {victim}).pop()

    reply = asyncio.run(cluster.verbs.preempt(urgent, {"a": Victims((other,), 0)}))

    assert reply.node_name_to_meta_victims == {}
