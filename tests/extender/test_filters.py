import asyncio
from dataclasses import replace

import builders
from extender import bodies
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import Expire, GpuHealth, PodGone
from slicewise.extender.binder import Binder, BindTimeouts
from slicewise.extender.decisions import Decisions
from slicewise.extender.filters import PlaceFilter
from slicewise.extender.protocol import CandidateNodes, SchedulerRequest, decode_binding
from slicewise.state.queries import PodQueries

SHARE = {"slicewise.io/cores": 60, "slicewise.io/memory": 4096}
WHOLE = {"slicewise.io/gpu": 1}


class Bench:
    """A placer and a binder over fakes, with a clock that is moved by hand."""

    def __init__(self, *nodes, pods=()):
        self.now = 0.0
        self.state = FakeState(*nodes)
        self.writer = FakeWriter(*pods)
        self.state.see(*pods)
        queries = PodQueries(self.state)
        timing = BindTimeouts(hold_seconds=60.0, clock=lambda: self.now, wall=lambda: 7)
        self.binder = Binder(queries, self.writer, timing)
        self.placer = PlaceFilter(Decisions(queries), self.binder)

    def place(self, pod, *names):
        ask = SchedulerRequest(pod, CandidateNodes(list(names)))
        return asyncio.run(self.placer.filter(ask)).reply

    def bind(self, node, name="p0", uid="u0"):
        return asyncio.run(self.binder.bind(decode_binding(bodies.binding(node, name, uid))))

    def used(self, node):
        return self.state.snapshot().get(node).used_cores


def pod(number=0, limits=SHARE, **facts):
    return builders.pod(limits=limits, uid=f"u{number}", name=f"p{number}", **facts)


def test_one_node_is_left_and_its_gpus_are_held():
    bench = Bench(builders.node("a"), builders.node("b"), pods=[pod()])

    reply = bench.place(pod(), "a", "b")

    (node,) = reply.node_names
    assert bench.used(node) == (60, 0)
    assert bench.writer.writes == 0


def test_held_gpus_are_not_given_to_another_pod():
    bench = Bench(builders.node("a", gpus=1), pods=[pod(0), pod(1)])

    bench.place(pod(0), "a")
    reply = bench.place(pod(1), "a")

    assert reply.node_names == []
    assert "Insufficient" in reply.failed_nodes["a"]


def test_bind_writes_what_was_held():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")

    assert bench.bind("a").error == ""

    written = bench.writer.pods["default", "p0"]
    assert '"c0":[[0,"GPU-a-0",60,4096]]' in written.annotations["slicewise.io/allocation"]
    assert bench.used("a") == (60, 0)
    assert bench.writer.writes == 1


def test_pod_that_is_asked_about_again_keeps_its_node():
    bench = Bench(builders.node("a"), builders.node("b"), pods=[pod(0), pod(1)])
    (first,) = bench.place(pod(0), "a", "b").node_names
    bench.place(pod(1), "a", "b")

    assert bench.place(pod(0), "a", "b").node_names == [first]


def test_pod_whose_node_is_no_longer_offered_is_placed_again():
    bench = Bench(builders.node("a"), builders.node("b"), pods=[pod()])
    (first,) = bench.place(pod(), "a", "b").node_names
    other = {"a": "b", "b": "a"}[first]

    assert bench.place(pod(), other).node_names == [other]
    assert bench.used(first) == (0, 0)


def test_pod_that_asks_for_something_else_now_is_placed_again():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")
    changed = pod(limits={"slicewise.io/cores": 10, "slicewise.io/memory": 1})

    assert bench.place(changed, "a").node_names == ["a"]
    assert bench.used("a") == (10, 0)


def test_gpus_nobody_came_back_for_are_free_after_the_hold():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")

    bench.state.ledger.apply(Expire(61.0))

    assert bench.used("a") == (0, 0)


def test_bind_after_the_hold_has_expired_decides_again():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")
    bench.state.ledger.apply(Expire(61.0))

    assert bench.bind("a").error == ""
    assert bench.used("a") == (60, 0)


def test_bind_outlasts_the_hold_while_it_is_written():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")
    bench.now = 59.0
    bench.binder._take_held(pod(), "a")

    bench.state.ledger.apply(Expire(120.0))

    assert bench.used("a") == (60, 0)


def test_gpu_that_became_unhealthy_meanwhile_is_not_bound():
    bench = Bench(builders.node("a"), pods=[pod(limits=WHOLE)])
    bench.place(pod(limits=WHOLE), "a")
    bench.state.ledger.apply(GpuHealth("a", "GPU-a-0", healthy=False))

    assert bench.bind("a").error == ""

    written = bench.writer.pods["default", "p0"]
    assert "GPU-a-1" in written.annotations["slicewise.io/allocation"]


def test_bind_to_another_node_than_the_held_one_moves_the_pod():
    bench = Bench(builders.node("a"), builders.node("b"), pods=[pod()])
    (first,) = bench.place(pod(), "a", "b").node_names
    other = {"a": "b", "b": "a"}[first]

    assert bench.bind(other).error == ""
    assert (bench.used(first), bench.used(other)) == ((0, 0), (60, 0))


def test_pod_that_is_deleted_frees_what_was_held():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")

    bench.state.ledger.apply(PodGone("u0"))

    assert bench.used("a") == (0, 0)


def test_pod_without_gpus_passes_everywhere():
    bench = Bench(builders.node("a"), builders.node("b"))

    assert bench.place(pod(limits={}), "a", "b").node_names == ["a", "b"]


def test_pod_that_is_bound_already_is_refused_not_placed_twice():
    bench = Bench(builders.node("a"), pods=[pod()])
    bench.place(pod(), "a")
    bench.bind("a")
    bench.state.see(replace(bench.writer.pods["default", "p0"], version=9))

    bench.place(pod(), "a")

    assert bench.used("a") == (60, 0)


def test_place_waits_while_binds_pile_up():
    bench = Bench(builders.node("a", gpus=8), pods=[pod(each) for each in range(20)])

    async def crowd():
        gate = asyncio.Event()
        waiting = [asyncio.create_task(bench.binder.finish(gate.wait())) for _ in range(16)]
        await asyncio.sleep(0)
        asking = asyncio.create_task(
            bench.placer.filter(SchedulerRequest(pod(0), CandidateNodes(["a"])))
        )
        done, _ = await asyncio.wait({asking}, timeout=0.05)
        gate.set()
        await asyncio.gather(*waiting)
        return done, (await asking).reply.node_names

    assert asyncio.run(crowd()) == (set(), ["a"])
