"""Plans are carried out pod by pod, and no further than the cluster is as planned."""

import asyncio
import json
import re
from types import SimpleNamespace

import msgspec
import pytest

import builders
from fakes.cluster import FakeState
from slicewise.cluster import PodGone
from slicewise.kube.errors import RefusedError
from slicewise.kube.eviction.pod_facts import PodFactsBody, read_pod_facts
from slicewise.placement.defrag import SearchLimits
from slicewise.state.defrag.defrag_view import ClusterReading, DefragView
from slicewise.state.defrag.movable_pods import Budgets
from slicewise.state.defrag.plan_runner import PlanEdges, PlanRunner, PlanStoppedError
from slicewise.state.queries import PodQueries

MEMORY = 40960
QUARTER = {"slicewise.io/cores": 25, "slicewise.io/memory": MEMORY // 4}


class Moving:
    """Two quarters on the one GPU of node a, which a pod waits for, and half a GPU on node b.

    It is the API server as well: an eviction ends a pod, and its successor runs at once.
    """

    def __init__(self):
        self.state = FakeState(*(builders.node(name, gpus=1) for name in "ab"))
        self.queries = PodQueries(self.state)
        self.facts = {}
        self.waits = builders.pod(uid="waits", name="waits", limits={"slicewise.io/gpu": 1})
        self.add("one", "a", owner="rs")
        self.add("two", "a", owner="rs")
        self.add("half", "b", 50)
        self.see(self.waits)
        self.evicted, self.kept, self.said, self.now = [], [], [], 0.0
        self.blocked = 0
        self.goes = "b"
        self.after = lambda: None

    def add(self, name, node, cores=25, owner=""):
        memory = MEMORY * cores // 100
        record = {"node": node, "containers": {"c0": [[0, f"GPU-{node}-0", cores, memory]]}}
        limits = {"slicewise.io/cores": cores, "slicewise.io/memory": memory}
        annotations = {"slicewise.io/allocation": json.dumps(record)}
        pod = builders.pod(uid=name, name=name, limits=limits, node=node, annotations=annotations)
        self.see(pod, owner)

    def see(self, pod, owner=""):
        self.state.see(pod)
        owners = [{"kind": "ReplicaSet", "uid": owner, "controller": True}] if owner else []
        meta = {"uid": pod.uid, "name": pod.name, "namespace": "default", "ownerReferences": owners}
        spec = {"nodeName": pod.node} if pod.node else {}
        phase = {"phase": "Running" if pod.node else "Pending"}
        self.facts[pod.uid] = {"metadata": meta, "spec": spec, "status": phase}

    def end(self, uid):
        del self.facts[uid]
        self.state.ledger.apply(PodGone(uid))

    async def read(self, call):
        return msgspec.json.encode({"metadata": {}, "items": list(self.facts.values())})

    async def send(self, call, body, **_):
        name = re.search("pods/(.*)/eviction", call.path)[1]
        if self.blocked:
            self.blocked -= 1
            raise RefusedError(429, "TooManyRequests", "the budget needs 1 healthy pod")
        self.evicted.append(name)
        self.end(name)
        if self.goes:
            self.add(f"{name}-next", self.goes, owner="rs")
        self.after()

    async def sleep(self, seconds):
        self.now += seconds

    access = SimpleNamespace(namespace="default")
    fence = None

    async def look(self, planned=frozenset()):
        bodies = (msgspec.convert(each, PodFactsBody) for each in self.facts.values())
        pods = {each.uid: each for each in map(read_pod_facts, bodies)}
        scheduler = SimpleNamespace(choose=lambda _: (["a", "b"], []))
        return DefragView(self.queries, ClusterReading(pods, Budgets([]), scheduler), 0, planned)

    async def keep(self, pod, node, victims):
        self.kept.append((pod.name, node, sorted(victims)))

    async def run(self):
        view = await self.look()
        plan = view.plan(view.ask(self.waits), SearchLimits()).plan
        assert [move.uid for move in plan.moves] in (["one", "two"], ["two", "one"])
        edges = PlanEdges(self, self.look, self.keep, self.said.append, 10, lambda: self.now)
        return await PlanRunner(edges, self.waits, plan).run()


@pytest.fixture
def moving():
    return Moving()


def place(moving):
    """The scheduler places the pod that waits as soon as nobody is left on its node."""
    if len(moving.evicted) == 2:
        moving.facts["waits"]["spec"]["nodeName"] = "a"


def test_every_move_is_made_with_the_room_kept_for_the_pod_that_waits(moving):
    moving.after = lambda: place(moving)

    assert asyncio.run(moving.run()) == "a"
    first, second = moving.evicted
    assert {first, second} == {"one", "two"}
    assert moving.kept == [("waits", "a", ["one", "two"]), ("waits", "a", [second])]
    assert moving.said[0] == f"default/{first} moved from node a to node b"


def test_budget_that_is_used_up_is_waited_for(moving):
    moving.after, moving.blocked = lambda: place(moving), 3

    assert asyncio.run(moving.run()) == "a"


def stopped(moving):
    with pytest.raises(PlanStoppedError) as caught:
        asyncio.run(moving.run())
    return str(caught.value)


def test_budget_that_stays_used_up_stops_the_plan(moving):
    moving.blocked = 1000

    assert "was not evicted: the budget needs 1 healthy pod" in stopped(moving)
    assert moving.evicted == []


def test_nobody_else_is_evicted_where_the_rest_does_not_make_room_any_more(moving):
    moving.after = lambda: moving.add("late", "b")

    assert "does not make room on node a any more" in stopped(moving)
    assert len(moving.evicted) == 1


def test_nobody_else_is_evicted_where_a_successor_does_not_run(moving):
    moving.goes = ""

    assert "no pod of its controller runs in its place after 10 s" in stopped(moving)
    assert len(moving.evicted) == 1


def test_nobody_else_is_evicted_when_the_pod_that_waits_is_gone(moving):
    moving.after = lambda: moving.end("waits")

    assert "default/waits is gone" in stopped(moving)
    assert len(moving.evicted) == 1


def test_nobody_else_is_evicted_when_a_pod_of_the_plan_is_gone(moving):
    moving.after = lambda: [moving.end(uid) for uid in ("one", "two") if uid in moving.facts]

    assert "is gone" in stopped(moving)
    assert len(moving.evicted) == 1


def test_nobody_else_is_evicted_when_the_pod_has_a_node_already(moving):
    moving.after = lambda: moving.facts["waits"]["spec"].update(nodeName="c")

    assert asyncio.run(moving.run()) == "c"
    assert len(moving.evicted) == 1


def test_pod_that_gets_no_node_after_all_moves_is_told(moving):
    assert "all moves are made, and default/waits has no node after 10 s" in stopped(moving)
