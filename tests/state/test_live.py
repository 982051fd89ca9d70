import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from conformance.bodies import config_map, pod
from kube.lines import QUICK, client
from slicewise.cluster import Assume, Confirm, Ledger, NodeSeen, PodSeen, Quota
from slicewise.dialects import DEFAULT, GPUS, QuotaLabels, write_gpus
from slicewise.kube.objects import KeyFilter, NodeBody, ObjectReader, PodBody
from slicewise.kube.watch import Gone, WatchSettings
from slicewise.model import PolicyError
from slicewise.placement import PlacementRequest, PodShape
from slicewise.state.live import LiveState
from slicewise.state.settings import StateSettings
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.cluster import Playground

FOLLOWING = WatchSettings(page=3, backoff=QUICK)


@pytest.fixture
def playground():
    with Playground() as playground:
        yield playground


@asynccontextmanager
async def living(playground, clock=lambda: 0.0, **facts):
    async with client(playground.url, seconds=1.0) as line:
        facts = {"following": FOLLOWING, "expire_seconds": 0.01, **facts}
        state = LiveState(line, StateSettings(**facts), clock=clock)
        async with asyncio.timeout(20):
            await state.start()
        try:
            yield state
        finally:
            await state.stop()


async def until(reached):
    """Return once the state is reached; fail after ten seconds without it."""
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.002)


def add_node(playground, name="n0", gpus=2):
    node = builders.node(name, gpus)
    metadata = {"name": name, "annotations": {GPUS: write_gpus(node)}}
    playground.create("nodes", {"metadata": metadata})


def add_pod(playground, name, cores=30, memory=4096, **fields):
    limits = {"slicewise.io/cores": str(cores), "slicewise.io/memory": str(memory)}
    playground.create("pods", pod(name, limits=limits, **fields))


def bind(playground, name, node="n0", gpu=0, cores=30, memory=4096):
    record = {
        "containers": {"main": [[gpu, f"GPU-{node}-{gpu}", cores, memory]]},
        "node": node,
    }
    text = msgspec.json.encode(record).decode()
    playground.bind(name, node, annotations={"slicewise.io/allocation": text})


def used(state, node="n0"):
    found = state.snapshot().get(node)
    return None if found is None else found.used_cores


def test_cluster_is_counted_at_start_and_as_it_changes(playground):
    add_node(playground)
    add_pod(playground, "a")
    bind(playground, "a")

    async def claim():
        async with living(playground) as state:
            assert state.ready
            assert used(state) == (30, 0)
            add_pod(playground, "b", 50)
            bind(playground, "b", gpu=1, cores=50)
            await until(lambda: used(state) == (30, 50))
            playground.delete("pods", "a", grace=0)
            await until(lambda: used(state) == (0, 50))
            playground.delete("nodes", "n0")
            await until(lambda: used(state) is None)

    asyncio.run(claim())


def test_pod_that_ended_is_counted_no_more(playground):
    add_node(playground)
    add_pod(playground, "a")
    bind(playground, "a")

    async def claim():
        async with living(playground) as state:
            playground.patch("pods", "a", {"status": {"phase": "Failed"}}, status=True)
            await until(lambda: used(state) == (0, 0))

    asyncio.run(claim())


@pytest.mark.parametrize("space", ["kube-system", "gpu"])
def test_quota_is_followed_and_mistakes_keep_the_last_good_one(playground, space):
    if space != "kube-system":
        playground.create("namespaces", {"metadata": {"name": space}})
    text = '{"team": {"quota": {"A100": 4}}}'

    async def claim():
        async with living(playground, quota=(space, "gpuquota")) as state:
            assert state.quota == Quota()
            body = config_map("gpuquota", {"gpu_quota": text}, namespace=space)
            playground.create("configmaps", body)
            await until(lambda: "team" in state.quota.namespaces)
            broken = {"data": {"gpu_quota": "{"}}
            playground.patch("configmaps", "gpuquota", broken, namespace=space)
            await until(state.problems)
            assert "team" in state.quota.namespaces
            playground.delete("configmaps", "gpuquota", namespace=space)
            await until(lambda: state.quota == Quota())
            assert state.problems() == ()

    asyncio.run(claim())


def test_quota_allows_nothing_before_it_was_looked_for(playground):
    async def claim():
        async with client(playground.url) as line:
            return LiveState(line).quota, LiveState(line, StateSettings(quota=None)).quota

    unread, none = asyncio.run(claim())
    assert unread.unreadable == "ConfigMap kube-system/gpuquota could not be read so far"
    assert none == Quota()


def test_quota_that_is_forbidden_allows_nothing_until_it_is_read(playground):
    fault = InjectedFault(verb="list", resource="configmaps", namespace="gpu", code=403, times=None)
    playground.faults.add(fault)

    async def claim():
        place = ("gpu", "gpuquota")
        async with living(playground, quota=place, quota_seconds=0.01) as state:
            assert state.ready
            assert state.quota.unreadable == "ConfigMap gpu/gpuquota could not be read so far"
            playground.faults.clear()
            await until(lambda: state.quota == Quota())
            await until(state.quota_changed.is_set)

    asyncio.run(claim())


def test_unhealthy_list_of_gpushare_is_followed(playground):
    add_node(playground)
    body = config_map("unhealthy-gpu-n0", {"gpus": "1"}, namespace="kube-system")
    playground.create("configmaps", body)

    def health(state):
        return [gpu.healthy for gpu in state.snapshot().get("n0").node.gpus]

    async def claim():
        async with living(playground) as state:
            assert health(state) == [True, False]
            playground.delete("configmaps", "unhealthy-gpu-n0", namespace="kube-system")
            await until(lambda: health(state) == [True, True])

    asyncio.run(claim())


def test_assumption_ends_at_its_deadline_by_the_given_clock(playground):
    add_node(playground)
    now = [0.0]

    async def claim():
        async with living(playground, clock=lambda: now[0]) as state:
            request = builders.fraction()
            allocation = (
                state.planner().place(state.snapshot(), PlacementRequest(request)).allocation
            )
            assert state.ledger.apply(Assume("u", "ml", "p", request, allocation, 5.0))
            await asyncio.sleep(0.05)
            held = sum(used(state))
            now[0] = 5.0
            await until(lambda: sum(used(state)) == 0)
            return held

    assert asyncio.run(claim()) == 30


@pytest.mark.parametrize(("bound", "left"), [(True, 0), (False, 30)])
def test_pod_that_was_bound_and_ended_while_the_watch_was_broken_holds_nothing(
    playground, bound, left
):
    add_node(playground)

    async def claim():
        async with living(playground) as state:
            request = builders.fraction()
            allocation = (
                state.planner().place(state.snapshot(), PlacementRequest(request)).allocation
            )
            state.ledger.apply(Assume("u", "ml", "p", request, allocation, 5.0))
            if bound:
                state.ledger.apply(Confirm("u"))
            # The version had expired, so that no list and no change ever shows the pod.
            await state.relist_pods()
            return sum(used(state))

    assert asyncio.run(claim()) == left


def test_planners_learn_from_arrivals_at_50_and_each_doubling(playground):
    add_node(playground)
    for number in range(49):
        add_pod(playground, f"p{number}")

    async def claim():
        async with living(playground) as state:
            planner = state.planner("fgd")
            assert planner.workload.counts == {}
            add_pod(playground, "p49")
            await until(lambda: planner.workload.counts == {PodShape(0, 30, 1, 4096): 50})
            assert state.planner("fgd") is planner
            assert state.planner("binpack").workload is planner.workload
            for number in range(50, 100):
                add_pod(playground, f"p{number}", 20)
            await until(lambda: sum(planner.workload.counts.values()) == 100)

    asyncio.run(claim())


def test_planners_of_many_policies_do_not_pile_up(playground):
    async def claim():
        async with client(playground.url) as line:
            state = LiveState(line)
            first = state.planner()
            for weight in range(1, 20):
                state.planner(f"node=binpack:{weight} gpu=best-fit")
            with pytest.raises(PolicyError):
                state.planner("nonsense")
            return len(state._planners), state.planner() is first

    assert asyncio.run(claim()) == (8, False)


def test_state_that_may_not_decide_is_not_ready(playground):
    async def claim():
        async with client(playground.url) as line:
            leads = [True]
            state = LiveState(line, obstacle=lambda: None if leads[0] else "it follows")
            before = state.ready
            await state.start()
            during, leads[0] = state.ready, False
            after = state.ready
            await state.stop()
            return before, during, after

    assert asyncio.run(claim()) == (False, True, False)


def test_state_whose_own_code_fails_is_ready_no_more(playground):
    add_node(playground)

    async def claim():
        async with living(playground) as state:
            state.ledger.apply = None
            add_pod(playground, "a")
            await until(lambda: not state.ready)

    asyncio.run(claim())


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "bind", "delete", "end", "drop", "cut", "expire", "expire-status", "fault"]
        ),
        st.integers(0, 5),
        st.integers(0, 1),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=25)
@given(operations=OPERATIONS)
def test_ledger_ends_equal_to_the_truth_whatever_happens(operations):
    with Playground() as playground:
        for name in ("n0", "n1"):
            add_node(playground, name)
        for number in range(4):
            operate(playground, "create", number, 0)
            operate(playground, "bind", number, number // 2)

        async def claim():
            async with living(playground) as state:
                for operation in operations:
                    operate(playground, *operation)
                    await asyncio.sleep(0)
                playground.faults.clear()
                await until(lambda: counted(state.snapshot()) == counted(truth(playground)))

        asyncio.run(claim())


def operate(playground, what, number, gpu):
    """One thing that happens to a cluster; what cannot happen does not."""
    name = f"p{number}"
    pods = {each["metadata"]["name"]: each for each in playground.objects("pods")}
    unbound = name in pods and "nodeName" not in pods[name]["spec"]
    if what == "create" and name not in pods:
        add_pod(playground, name, 10)
    elif what == "bind" and unbound:
        bind(playground, name, f"n{number % 2}", gpu, 10)
    elif what == "delete" and name in pods:
        playground.delete("pods", name, grace=0)
    elif what == "end" and name in pods:
        playground.patch("pods", name, {"status": {"phase": "Succeeded"}}, status=True)
    elif what in ("drop", "cut"):
        playground.drop_watches(abrupt=what == "cut")
    elif what.startswith("expire"):
        # Whatever happens between the drop and the expiry is seen by no watch.
        playground.faults.add(InjectedFault(verb="watch", resource="pods", code=503))
        playground.drop_watches()
        operate(playground, ("delete", "bind")[gpu], number, gpu)
        playground.expire(as_status=what == "expire-status")
    elif what == "fault":
        verb = ("list", "watch")[gpu]
        code = (500, 429, 410, 503, 504, 403)[number]
        playground.faults.add(InjectedFault(verb=verb, code=code))


def truth(playground):
    """What a ledger says that was told everything at once."""
    ledger, reader = (
        Ledger(DEFAULT),
        ObjectReader(KeyFilter(DEFAULT.keys, DEFAULT.keys, DEFAULT.amounts)),
    )
    for each in playground.objects("nodes"):
        notice = reader.read_node_notice(msgspec.convert(each, NodeBody))
        ledger.apply(NodeSeen(DEFAULT.read_node(notice), notice.version))
    for each in playground.objects("pods"):
        ledger.apply(PodSeen(reader.read_pod(msgspec.convert(each, PodBody))))
    return ledger.snapshot()


def counted(snapshot):
    return {
        state.node.name: (state.used_cores, [each.uid for each in state.holdings])
        for state in snapshot
    }


class Hearing:
    """Somebody who notes what was told of, and whether the ledger knew it by then."""

    def __init__(self):
        self.nodes, self.pods = [], []

    def on_nodes(self, changes):
        self.nodes += changes

    def on_pods(self, changes):
        self.pods += changes


def test_listener_hears_of_nodes_and_pods_and_of_their_end(playground):
    hearing = Hearing()

    async def scene():
        async with client(playground.url, seconds=1.0) as line:
            state = LiveState(line, StateSettings(following=FOLLOWING))
            state.listener = hearing
            await state.start()
            add_pod(playground, "p")
            await until(lambda: hearing.pods)
            playground.delete("pods", "p")
            await until(lambda: len(hearing.pods) > 1 and isinstance(hearing.pods[-1], Gone))
            await state.stop()

    add_node(playground)
    asyncio.run(scene())

    assert [each.value.name for each in hearing.nodes] == ["n0"]
    assert hearing.pods[0].value.name == "p"


def test_pod_that_our_own_code_fails_on_is_reported_and_no_other_is_lost(playground, monkeypatch):
    add_node(playground)
    apply, broken = Ledger.apply, [True]

    def fail(ledger, event):
        if broken and isinstance(event, PodSeen) and event.pod.name == "bad":
            raise KeyError("a bug of ours")
        return apply(ledger, event)

    monkeypatch.setattr(Ledger, "apply", fail)

    async def claim():
        following = WatchSettings(page=3, backoff=QUICK, bad_backoff=QUICK)
        async with living(playground, following=following) as state:
            for name in ("a", "bad", "c"):
                add_pod(playground, name, node="n0")
            await until(lambda: state.ledger.pods == 2)
            await until(lambda: state.watches.bad_objects)
            found = [each for each in state.problems() if each.trouble == "UnreadableObject"]
            assert [each.subject for each in found] == ["pods/default/bad"]
            assert state.failure is None
            broken.clear()
            await until(lambda: state.ledger.pods == 3 and not state.watches.bad_objects)

    asyncio.run(claim())


def test_task_that_ends_is_a_failure_that_stops_decisions(playground):
    async def claim():
        async with living(playground) as state:
            assert state.ready
            state._tasks.run("watch of pods", asyncio.sleep(0))
            await until(lambda: state.failure is not None)
            assert state.unready == "task watch of pods has ended: it returned"

    asyncio.run(claim())


def test_nodes_are_read_by_the_labels_of_the_quota(playground):
    add_node(playground)
    labels = {"x.org/model": "training-a", "x.org/pool": "gold"}
    playground.patch("nodes", "n0", {"metadata": {"labels": labels}})

    async def claim():
        told = QuotaLabels("x.org/model", "x.org/pool")
        async with living(playground, quota_labels=told) as state:
            return state.snapshot().get("n0").node

    node = asyncio.run(claim())
    assert node.pool == "gold"
    assert "training-a" in node.gpus[0].model
