import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.extender.binder import Binder, BindTimeouts
from slicewise.extender.decisions import TAKEN_ELSEWHERE, Decisions
from slicewise.extender.filters import CommitFilter
from slicewise.extender.protocol import CandidateNodes, SchedulerRequest, decode_binding
from slicewise.kube.outcomes import WriteStatus
from slicewise.state.queries import PodQueries

A100 = "NVIDIA A100-SXM4-40GB"
SHARE = {"slicewise.io/cores": 60, "slicewise.io/memory": 4096}
VCUDA = {"nvidia.com/vcuda-core": 60, "nvidia.com/vcuda-memory": 4096}


class Bench:
    """A binder over fakes, with a clock that stands still."""

    def __init__(self, *nodes, pods=(), known=True):
        self.state = FakeState(*nodes)
        self.writer = FakeWriter(*pods)
        if known:
            self.state.see(*pods)
        queries = PodQueries(self.state)
        self.binder = Binder(queries, self.writer, BindTimeouts(clock=lambda: 0.0, wall=lambda: 7))
        self.committer = CommitFilter(Decisions(queries), self.binder)

    def bind(self, node, name="p0", uid="u0"):
        return self.binder.bind(decode_binding(bodies.binding(node, name, uid)))

    def commit(self, pod, *names):
        return self.committer.filter(SchedulerRequest(pod, CandidateNodes(list(names))))

    def used(self, node):
        return self.state.snapshot().get(node).used_cores


def pod(number=0, limits=SHARE, **facts):
    return builders.pod(limits=limits, uid=f"u{number}", name=f"p{number}", **facts)


def run(coroutine):
    return asyncio.run(coroutine)


def test_bind_is_one_write_that_carries_the_allocation():
    bench = Bench(builders.node("a"), pods=[pod()])

    bound = run(bench.bind("a"))

    assert bound.error == ""
    assert bench.writer.writes == 1
    written = bench.writer.pods["default", "p0"]
    assert written.node == "a"
    assert '"c0":[[0,"GPU-a-0",60,4096]]' in written.annotations["slicewise.io/allocation"]
    assert bench.used("a") == (60, 0)


def test_an_event_says_which_gpus_and_why():
    bench = Bench(builders.node("a"), pods=[pod()])

    run(bench.bind("a"))

    ((name, event),) = bench.writer.events
    assert name == "p0"
    assert f"c0: 60 percent and 4096 MiB of gpu 0 ({A100}) on node a" in event.note
    assert "policy binpack among 2 GPUs" in event.note


def test_pod_that_was_never_shown_is_read_from_the_api():
    bench = Bench(builders.node("a"), pods=[pod()], known=False)

    assert run(bench.bind("a")).error == ""
    assert bench.writer.calls["read_pod"] == 1


def test_binding_twice_is_harmless():
    async def twice():
        bench = Bench(builders.node("a"), pods=[pod()])
        first, second = await asyncio.gather(bench.bind("a"), bench.bind("a"))
        return bench, first, second

    bench, first, second = run(twice())

    assert (first.error, second.error) == ("", "")
    assert bench.writer.writes == 1
    assert bench.used("a") == (60, 0)


def test_binding_again_to_another_node_is_refused_and_frees_nothing():
    async def twice():
        bench = Bench(builders.node("a"), builders.node("b"), pods=[pod()])
        await bench.bind("a")
        return bench, await bench.bind("b")

    bench, second = run(twice())

    assert second.error == "pod default/p0 is on node a"
    assert (bench.used("a"), bench.used("b")) == ((60, 0), (0, 0))


@pytest.mark.parametrize("status", [WriteStatus.REFUSED, WriteStatus.GONE, WriteStatus.CONFLICT])
def test_what_the_api_refuses_is_given_back(status):
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.writer.answers = [status]

    bound = run(bench.bind("a"))

    assert status.value in bound.error
    assert bench.used("a") == (0, 0)


def test_lost_answer_is_found_out_by_reading():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.writer.answers, bench.writer.done_unheard = [WriteStatus.UNKNOWN], True

    assert run(bench.bind("a")).error == ""
    assert bench.used("a") == (60, 0)


def test_lost_write_is_given_back_once_reading_shows_it_undone():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.writer.answers = [WriteStatus.UNKNOWN]

    assert run(bench.bind("a")).error
    assert bench.used("a") == (0, 0)


def test_write_that_stays_unknown_counts_until_its_deadline():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.writer.answers = [WriteStatus.UNKNOWN]

    async def unknown(*_, **__):
        return replace(await bench.writer.bind(pod(), "a", None), status=WriteStatus.UNKNOWN)

    bench.writer.answers = [WriteStatus.UNKNOWN, WriteStatus.UNKNOWN]
    bench.writer.settle_bind = unknown

    assert "bind outcome unknown for node a" in run(bench.bind("a")).error
    assert bench.used("a") == (60, 0)
    bench.state.expire(1e9)
    assert bench.used("a") == (0, 0)


def test_a_client_that_leaves_does_not_stop_a_bind():
    async def leave():
        bench = Bench(builders.node("a"), pods=[pod()])
        bench.writer.gate = asyncio.Event()
        asking = asyncio.ensure_future(bench.bind("a"))
        while not bench.writer.calls["bind"]:
            await asyncio.sleep(0)
        asking.cancel()
        bench.writer.gate.set()
        await bench.binder.drain()
        return bench

    bench = run(leave())

    assert bench.writer.pods["default", "p0"].node == "a"
    assert len(bench.binder.locks) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"uid": "other"}, "has UID other: expected u0"),
        ({"deleting": True}, "is being deleted"),
        ({"node": "b"}, "is on node b"),
    ],
)
def test_pods_that_cannot_be_bound_are_refused_without_a_write(changed, said):
    bench = Bench(builders.node("a"), pods=[replace(pod(), **changed)], known=False)

    assert said in run(bench.bind("a")).error
    assert bench.writer.writes == 0


def test_full_node_is_refused_with_its_numbers():
    async def fill():
        bench = Bench(builders.node("a", 1), pods=[pod(0), pod(1)])
        await bench.bind("a")
        return await bench.bind("a", "p1", "u1")

    bound = run(fill())

    assert bound.reason == "InsufficientGpuCores"
    assert "needs 60 percent on one GPU, most free is 40 percent on gpu 0" in bound.error


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([20, 50, 60, 100]), min_size=2, max_size=12),
    st.lists(st.sampled_from(list(WriteStatus)), max_size=4),
)
def test_concurrent_binds_never_overcommit(sizes, answers):
    pods = [
        pod(at, {"slicewise.io/cores": cores, "slicewise.io/memory": 1})
        for at, cores in enumerate(sizes)
    ]

    async def burst():
        bench = Bench(builders.node("a", 2), pods=pods)
        bench.writer.answers = [each for each in answers if each is not WriteStatus.DONE]
        bench.writer.gate = asyncio.Event()
        asking = [asyncio.ensure_future(bench.bind("a", p.name, p.uid)) for p in pods]
        await asyncio.sleep(0)
        bench.writer.gate.set()
        await asyncio.gather(*asking)
        return bench

    bench = run(burst())

    assert all(used <= 100 for used in bench.used("a"))
    bound = [each for each in bench.writer.pods.values() if each.node == "a"]
    fresh = FakeState(builders.node("a", 2))
    fresh.see(*bound)
    assert fresh.ledger.problems() == ()


def test_commit_leaves_one_node_and_marks_the_pod():
    bench = Bench(builders.node("a"), builders.node("b", 4), pods=[pod(limits=VCUDA)])

    filtered = run(bench.commit(pod(limits=VCUDA), "a", "b"))

    assert filtered.reply.node_names == ["a"]
    assert filtered.reply.failed_nodes == {"b": TAKEN_ELSEWHERE}
    marked = bench.writer.pods["default", "p0"]
    assert marked.annotations["nvidia.com/predicate-node"] == "a"
    assert marked.annotations["nvidia.com/predicate-gpu-idx-0"] == "0"
    assert marked.node is None
    assert bench.used("a") == (60, 0)


def test_pod_whose_commit_failed_later_is_committed_again():
    async def again():
        bench = Bench(builders.node("a", 1), builders.node("b", 1), pods=[pod(limits=VCUDA)])
        await bench.commit(pod(limits=VCUDA), "a")
        stale = bench.writer.pods["default", "p0"]
        bench.state.see(stale)
        return bench, await bench.commit(stale, "b")

    bench, filtered = run(again())

    assert filtered.reply.error == ""
    assert filtered.reply.node_names == ["b"]
    assert bench.writer.pods["default", "p0"].annotations["nvidia.com/predicate-node"] == "b"
    assert (bench.used("a"), bench.used("b")) == ((0,), (60,))


def test_commit_that_the_api_refuses_is_an_error_and_given_back():
    bench = Bench(builders.node("a"), pods=[pod(limits=VCUDA)])
    bench.writer.answers = [WriteStatus.REFUSED]

    filtered = run(bench.commit(pod(limits=VCUDA), "a"))

    assert "cannot write nvidia.com/gpu-assigned" in filtered.reply.error
    assert bench.used("a") == (0, 0)


def test_commit_and_bind_together_bind_the_committed_gpus():
    async def both():
        bench = Bench(builders.node("a"), pods=[pod(limits=VCUDA)])
        await bench.commit(pod(limits=VCUDA), "a")
        return bench, await bench.bind("a")

    bench, bound = run(both())

    assert bound.error == ""
    assert bench.writer.pods["default", "p0"].node == "a"
    assert bench.used("a") == (60, 0)


def test_commit_passes_pods_without_gpus():
    bench = Bench(builders.node("a"), pods=[pod(limits={})])

    assert run(bench.commit(pod(limits={}), "a", "b")).reply.node_names == ["a", "b"]
    assert bench.writer.writes == 0
