"""Records of pods that their scheduler bound by itself, and what is told of those without room."""

import asyncio
from dataclasses import replace
from functools import wraps

import pytest

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.cluster import PodSeen
from slicewise.dialects import ALLOCATION
from slicewise.extender.handlers import Extender
from slicewise.extender.recorder import Recorder
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import Phase, TrustPolicy
from slicewise.trust import TrustDocument, TrustStore


def on_a_loop(test):
    """The test as a plain function."""

    @wraps(test)
    def run(**given):
        asyncio.run(test(**given))

    return run


def plain(uid="u0", **facts):
    facts = {"node": "n0", "version": 1, **facts}
    return builders.pod(uid=uid, name=uid, limits={"nvidia.com/gpu": 1}, **facts)


class Scene:
    """A node of our agent with bound pods that the API server and the ledger know."""

    def __init__(self, *pods, agent=True, gpus=2, trust=None):
        self.trust = trust
        self.state = FakeState(builders.node("n0", gpus, agent=agent))
        self.writer = FakeWriter(*pods)
        self.state.see(*pods)
        self.renew()

    def renew(self):
        """Another extender, or the same that came back."""
        extender = Extender(self.state, self.writer)
        self.recorder = Recorder(extender.binder, extender.metrics, self.trust)

    async def look(self):
        self.recorder.look()
        await self.recorder.drain()

    def record(self, name="u0"):
        return self.writer.pods["default", name].annotations.get(ALLOCATION)

    def reasons(self):
        return [event.reason for _, event in self.writer.events]


@on_a_loop
async def test_bound_pod_gets_its_record_in_one_write():
    scene = Scene(plain())

    await scene.look()
    await scene.look()

    assert '"node":"n0"' in scene.record()
    assert scene.writer.writes == 1
    assert scene.reasons() == ["GpuAssigned"]
    assert scene.state.ledger.adopted_pods() == ()


@on_a_loop
async def test_record_says_what_the_ledger_counts():
    scene = Scene(plain())
    (gpu,) = scene.state.ledger.adopted_pod("u0").allocation.gpus

    await scene.look()

    assert f'[{gpu},"GPU-n0-{gpu}",100,' in scene.record()
    assert scene.state.snapshot().get("n0").used_cores[gpu] == 100


@on_a_loop
async def test_nothing_is_written_where_the_kubelet_chooses():
    scene = Scene(plain(), agent=False)

    await scene.look()

    assert scene.writer.writes == 0
    assert sum(scene.state.snapshot().get("n0").used_cores) == 100


@pytest.mark.parametrize(
    ("policy", "gpus", "writes"),
    [
        pytest.param(TrustPolicy(takeover_began=1), 2, 0, id="under-way"),
        pytest.param(TrustPolicy(takeover_began=1), 1, 1, id="no-choice"),
        pytest.param(TrustPolicy(takeover_began=1, takeover_ended=2), 2, 1, id="ended"),
        pytest.param(TrustPolicy(), 2, 1, id="never-begun"),
    ],
)
@on_a_loop
async def test_pod_that_runs_with_what_somebody_else_gave_is_left_to_a_take_over(
    policy, gpus, writes
):
    trust = TrustStore()
    trust.take(TrustDocument({}, policy))
    scene = Scene(plain(), gpus=gpus, trust=trust)
    running = plain(phase=Phase.RUNNING, version=2)
    scene.writer.add(running)
    scene.state.see(running)

    await scene.look()

    assert scene.writer.writes == writes


@on_a_loop
async def test_only_the_leader_writes():
    scene = Scene(plain())
    scene.state.ready = False

    await scene.look()

    assert scene.writer.writes == 0


@on_a_loop
async def test_pod_that_changed_meanwhile_is_written_with_its_new_version():
    scene = Scene(plain())
    scene.writer.add(plain(version=7, labels={"app": "x"}))

    await scene.look()

    assert scene.record() is not None
    assert scene.writer.calls["annotate_pod"] == 2


@on_a_loop
async def test_record_of_another_leader_stands():
    scene = Scene(plain())
    await scene.look()
    first = scene.record()
    late = Scene(plain())
    late.writer = scene.writer
    late.renew()
    late.state.ledger.apply(PodSeen(plain("u1", version=3)))
    late.writer.add(plain("u1", version=3))

    await late.look()

    assert scene.record() == first
    assert [each.pod.uid for each in late.state.ledger.adopted_pods()] == []
    assert late.state.problems() == ()


@on_a_loop
async def test_lost_answer_is_looked_up_and_not_written_again():
    scene = Scene(plain())
    scene.writer.answers, scene.writer.done_unheard = [WriteStatus.UNKNOWN], True

    await scene.look()
    await scene.look()

    assert scene.writer.writes == 1
    assert scene.state.ledger.adopted_pods() == ()


@on_a_loop
async def test_gpu_of_a_write_of_unknown_end_stays_the_pods_own():
    scene = Scene(plain())
    scene.writer.answers = [WriteStatus.UNKNOWN]

    await scene.look()

    adopted = scene.state.ledger.adopted_pod("u0")
    assert adopted.pinned
    await scene.look()
    assert f"[{adopted.allocation.gpus[0]}," in scene.record()


@on_a_loop
async def test_refused_write_is_tried_again_later_and_pins_nothing():
    scene = Scene(plain())
    scene.writer.answers = [WriteStatus.REFUSED]

    await scene.look()
    assert not scene.state.ledger.adopted_pod("u0").pinned
    await scene.look()

    assert scene.record() is not None


@on_a_loop
async def test_pod_without_room_is_told_once_and_what_to_do():
    scene = Scene(plain("u0"), plain("u1"), gpus=1)

    await scene.look()
    await scene.look()

    assert sorted(scene.reasons()) == ["GpuAssigned", "GpuNotAssigned"]
    (note,) = [each.note for _, each in scene.writer.events if each.warning]
    assert "needs 1 whole GPU, none is free" in note
    assert "is deleted" in note


@on_a_loop
async def test_gone_pod_is_let_go():
    scene = Scene(plain())
    scene.writer.pods.clear()

    await scene.look()

    assert scene.writer.writes == 1
    assert not scene.state.ledger.adopted_pod("u0").pinned


@on_a_loop
async def test_pods_are_written_side_by_side():
    scene = Scene(*(plain(f"u{at}") for at in range(4)), gpus=4)
    scene.writer.gate = asyncio.Event()
    scene.recorder.look()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    begun = scene.writer.calls["annotate_pod"]
    scene.writer.gate.set()
    await scene.recorder.drain()

    assert begun == 4
    assert all(scene.record(f"u{at}") for at in range(4))


@on_a_loop
async def test_loop_writes_when_something_stirs():
    scene, dirty = Scene(), asyncio.Event()
    running = asyncio.create_task(scene.recorder.run(dirty))
    await asyncio.sleep(0)
    pod = replace(plain(), version=2)
    scene.writer.add(pod)
    scene.state.see(pod)

    dirty.set()
    async with asyncio.timeout(10):
        while scene.record() is None:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scene.writer.writes == 1
