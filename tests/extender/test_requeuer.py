"""Pods that wait for quota, and what is touched so that the scheduler looks at them again."""

import asyncio
import json

import pytest

import builders
from extender import bodies
from extender.living import Cluster, wait_until
from fakes.cluster import FakeState, FakeWriter
from slicewise.dialects.own.pods import FREED, REQUEUED
from slicewise.extender.requeuer import Requeuer
from slicewise.kube.outcomes import PodName, WriteStatus

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
RECORD = '{"node":"n0","containers":{"c0":[[0,"GPU-n0-0",30,4096]]}}'


def share(name, node=None, **facts):
    if node is not None:
        facts["annotations"] = {"slicewise.io/allocation": RECORD}
    return builders.pod(uid=name, name=name, limits=SHARE, node=node, **facts)


def wake(*pods, own=None, ready=True, answers=()):
    """How many pods were touched, and the names of those that carry the annotation now."""
    state, writer = FakeState(builders.node("n0")), FakeWriter(*pods)
    state.ready, writer.answers = ready, list(answers)
    state.see(*pods)
    count = asyncio.run(Requeuer(state, writer, lambda: "now", own).requeue())
    return count, sorted(pod.name for pod in writer.pods.values() if REQUEUED in pod.annotations)


def test_one_write_wakes_however_many_wait():
    waiting = [share(f"w{at}") for at in range(20)]

    assert wake(share("bound", "n0"), *waiting) == (1, ["bound"])


def test_own_pod_is_touched_before_anybody_elses():
    own = builders.pod(uid="own", name="own")

    pods = (share("bound", "n0"), share("waits"), own)

    assert wake(*pods, own=PodName("own", "default", "own")) == (1, ["own"])


def test_waiting_pods_are_touched_where_none_is_bound():
    assert wake(share("w0"), share("w1")) == (2, ["w0", "w1"])


def test_requeue_is_tried_again_with_backoff_until_a_write_succeeds():
    async def act():
        pods = share("bound", "n0"), *(share(f"w{at}") for at in range(20))
        state, writer, pauses = FakeState(builders.node("n0")), FakeWriter(*pods), []
        state.see(*pods)
        # One bound pod and five that wait are tried each time, not all of them.
        writer.answers = [WriteStatus.REFUSED] * 12

        async def pause(seconds):
            pauses.append(seconds)

        changed = asyncio.Event()
        changed.set()
        requeuer = Requeuer(state, writer, lambda: "now", sleep=pause)
        requeuer.chance = lambda: 1.0
        work = asyncio.create_task(requeuer.run(changed, asyncio.Event()))
        for _ in range(100):
            await asyncio.sleep(0)
        work.cancel()
        return pauses, [pod.name for pod in writer.pods.values() if REQUEUED in pod.annotations]

    assert asyncio.run(act()) == ([1.0, 2.0], ["bound"])


def test_pod_that_is_gone_by_now_is_passed_over():
    pods = (share("b0", "n0"), share("b1", "n0"), share("waits"))

    count, touched = wake(*pods, answers=[WriteStatus.GONE])

    assert (count, len(touched)) == (1, 1)


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        pytest.param([share("bound", "n0")], True, id="nobody-waits"),
        pytest.param([share("bound", "n0"), share("waits")], False, id="another-leads"),
        pytest.param([share("bound", "n0"), builders.pod(uid="x", name="x")], True, id="no-gpu"),
        pytest.param([share("bound", "n0"), share("w", deleting=True)], True, id="ending"),
    ],
)
def test_nothing_is_written_when(pods, ready):
    assert wake(*pods, ready=ready) == (0, [])


def test_changed_quota_of_a_running_cluster_touches_one_bound_pod():
    with Cluster() as cluster:
        cluster.wait_ready()
        assert cluster.schedule(cluster.add("bound", SHARE)) is not None
        cluster.add("waits", SHARE)
        text = json.dumps({"team-a": {"quota": {"A100": 2}}})
        meta = {"name": "gpuquota", "namespace": "kube-system"}
        cluster.playground.create("configmaps", {"metadata": meta, "data": {"gpu_quota": text}})

        wait_until(lambda: touched(cluster) == ["bound"])
        # The same once more is no change; what comes after it is seen later.
        for data in ({"other": "x"}, {"gpu_quota": "{}"}):
            patch = {"data": data}
            cluster.playground.patch("configmaps", "gpuquota", patch, namespace="kube-system")
        writes = cluster.playground.writes
        wait_until(lambda: writes("patch", "pods") == {"default/bound": 2})


def test_room_that_is_freed_all_the_time_requeues_ever_more_seldom():
    state, writer = FakeState(builders.node("n0")), FakeWriter(share("bound", "n0"), share("waits"))
    state.see(*writer.pods.values())
    pauses, freed = [], asyncio.Event()

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) in (3, 4):
            return
        freed.set()
        if len(pauses) == 5:
            raise asyncio.CancelledError

    async def claim():
        requeuer = Requeuer(state, writer, lambda: "now", sleep=sleep)
        freed.set()
        running = asyncio.create_task(requeuer.run_freed(freed))
        while len(pauses) < 5:
            if len(pauses) >= 3 and not freed.is_set():
                freed.set()
            await asyncio.sleep(0)
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(claim())

    assert pauses[:3] == [2.0, 4.0, 8.0]
    assert pauses[3] == 2.0
    assert writer.calls["annotate_pod"] == 5


def test_reservation_of_a_pod_that_is_deleted_wakes_those_who_wait_once():
    with Cluster(nodes=1, gpus=1) as cluster:
        cluster.wait_ready()
        assert cluster.schedule(cluster.add("bound", SHARE)) is not None
        held = cluster.add("held", {"slicewise.io/cores": 70, "slicewise.io/memory": 4096})
        reply = json.loads(cluster.ask("/place", bodies.args(held, ["n0"]))[1])
        assert reply["NodeNames"] == ["n0"]
        assert cluster.schedule(cluster.add("waits", {**SHARE, "slicewise.io/cores": 60})) is None

        cluster.playground.delete("pods", "held")

        wait_until(lambda: touched(cluster, FREED) == ["bound"])
        assert cluster.playground.writes("patch", "pods") == {"default/bound": 1}


def test_gpu_that_is_healthy_again_wakes_those_who_wait():
    listed = {"metadata": {"name": "unhealthy-gpu-n0", "namespace": "kube-system"}}
    with Cluster(nodes=1, gpus=2) as cluster:
        cluster.playground.create("configmaps", {**listed, "data": {"gpus": "1"}})
        cluster.wait_ready()
        assert cluster.schedule(cluster.add("bound", SHARE)) is not None
        waits = cluster.add("waits", {"slicewise.io/cores": 100})
        wait_until(lambda: cluster.schedule(waits) is None)

        cluster.playground.delete("configmaps", "unhealthy-gpu-n0", namespace="kube-system")

        wait_until(lambda: touched(cluster, FREED) == ["bound"])


def touched(cluster, mark=REQUEUED):
    return [
        pod["metadata"]["name"]
        for pod in cluster.playground.objects("pods")
        if mark in pod["metadata"].get("annotations", {})
    ]


@pytest.mark.parametrize(("event", "mark"), [(0, REQUEUED), (1, FREED)])
def test_change_that_comes_before_this_process_may_decide_is_told_once_it_may(event, mark):
    async def act():
        pods = share("bound", "n0"), share("waits")
        state, writer = FakeState(builders.node("n0")), FakeWriter(*pods)
        state.see(*pods)
        state.ready = False

        async def pause(_):
            state.ready = True
            await asyncio.sleep(0)

        events = asyncio.Event(), asyncio.Event()
        events[event].set()
        requeuer = Requeuer(state, writer, lambda: "now", sleep=pause)
        work = asyncio.create_task(requeuer.run(*events))
        for _ in range(50):
            await asyncio.sleep(0)
        work.cancel()
        return [pod.name for pod in writer.pods.values() if mark in pod.annotations]

    assert asyncio.run(act()) == ["bound"]


def test_agent_that_is_back_wakes_those_who_wait():
    with Cluster(nodes=2, gpus=1) as cluster:
        cluster.wait_ready()
        used = cluster.schedule(cluster.add("bound", SHARE))["spec"]["nodeName"]
        lost = "n1" if used == "n0" else "n0"
        annotations = cluster.playground.get("nodes", lost)["metadata"]["annotations"]
        gone = {"metadata": {"annotations": dict.fromkeys(annotations)}}
        cluster.playground.patch("nodes", lost, gone)
        waits = cluster.add("waits", {"slicewise.io/cores": 100})
        wait_until(lambda: not fits(cluster, waits))

        cluster.playground.patch("nodes", lost, {"metadata": {"annotations": annotations}})

        wait_until(lambda: touched(cluster, FREED) == ["bound"])


def fits(cluster, pod):
    reply = json.loads(cluster.ask("/filter", bodies.args(pod, ["n0", "n1"]))[1])
    return bool(reply["NodeNames"])
