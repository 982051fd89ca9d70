"""Room that preemption makes: for whom it is kept, and that it is counted once."""

import asyncio
import json

import pytest

import builders
from fakes.cluster import FakeState
from slicewise.cluster import PodGone
from slicewise.extender.decisions import Decisions
from slicewise.extender.protocol import Victims
from slicewise.state.queries import PodQueries

MEMORY = 40960


class Preempting:
    """An extender's decisions on one node of two GPUs, each shared by two pods of low priority."""

    def __init__(self):
        self.now = 0.0
        self.state = FakeState(builders.node("a", gpus=2))
        self.verbs = Decisions(PodQueries(self.state), lambda: self.now)
        self.state.see(*(half(gpu, at) for gpu in (0, 1) for at in (0, 1)))

    def add(self, name, priority, limits=None):
        pod = builders.pod(
            uid=name, name=name, priority=priority, limits=limits or {"slicewise.io/gpu": 1}
        )
        self.state.see(pod)
        return pod

    def preempt(self, pod):
        pods = ("h00", "h01", "h10", "h11")
        left = tuple(uid for uid in pods if self.state.ledger.pod(uid) is not None)
        offered = {"a": Victims(left, 0)}
        reply = asyncio.run(self.verbs.preempt(pod, offered)).node_name_to_meta_victims
        return {each.uid for victims in reply.values() for each in victims.pods}

    def end(self, *uids):
        for uid in uids:
            self.state.ledger.apply(PodGone(uid))
            self.verbs.nominations.on_pods(())

    def fits(self, pod):
        query = self.verbs.queries.build(pod)
        return self.verbs.screen(query, ["a"]).fits == [True]


def half(gpu, at):
    record = {"node": "a", "containers": {"c0": [[gpu, f"GPU-a-{gpu}", 50, MEMORY // 2]]}}
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": MEMORY // 2}
    name, annotations = f"h{gpu}{at}", {"slicewise.io/allocation": json.dumps(record)}
    return builders.pod(uid=name, name=name, limits=limits, node="a", annotations=annotations)


@pytest.fixture
def cluster():
    return Preempting()


def test_victims_of_one_pod_are_no_room_for_another(cluster):
    first, second, third = (cluster.add(name, 10) for name in ("u0", "u1", "u2"))

    victims = [cluster.preempt(pod) for pod in (first, second, third)]

    assert victims == [{"h00", "h01"}, {"h10", "h11"}, set()]


def test_room_of_the_first_victim_is_kept_until_the_second_has_left(cluster):
    urgent = cluster.add("urgent", 10)
    late = cluster.add("late", 0, {"slicewise.io/cores": 50, "slicewise.io/memory": MEMORY // 2})
    cluster.preempt(urgent)

    cluster.end("h00")
    assert not cluster.fits(late)
    cluster.end("h01")

    assert not cluster.fits(late)
    assert cluster.fits(urgent)


def test_room_is_given_back_when_the_pod_it_was_made_for_is_gone(cluster):
    urgent, late = cluster.add("urgent", 10), cluster.add("late", 0)
    cluster.preempt(urgent)
    cluster.end("h00", "h01")

    cluster.end("urgent")

    assert cluster.fits(late)


def test_room_is_given_back_when_time_is_up(cluster):
    urgent, late = cluster.add("urgent", 10), cluster.add("late", 0)
    cluster.preempt(urgent)
    cluster.end("h00", "h01")

    cluster.now = 61.0
    cluster.state.expire(cluster.now)

    assert cluster.fits(late)
    assert cluster.verbs.nominations.taken("late") == frozenset()


def test_reserved_room_is_never_named_as_a_victim(cluster):
    cluster.preempt(cluster.add("urgent", 10))
    cluster.end("h00", "h01")

    assert cluster.preempt(cluster.add("more-urgent", 20)) == {"h10", "h11"}
