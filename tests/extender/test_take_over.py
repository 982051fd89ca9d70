import asyncio
from dataclasses import replace

import pytest

import builders
from fakes.cluster import FakeState, FakeWriter
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE, judge, write_signed_record
from slicewise.dialects.shared.started_gpus import STARTED_GPUS, write_started_gpus
from slicewise.extender.binder import Binder, BindTimeouts
from slicewise.extender.take_over import TakeOver
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import (
    Allocation,
    ContainerAllocation,
    NodeNotice,
    Phase,
    Standing,
    TrustPolicy,
)
from slicewise.state.queries import PodQueries
from slicewise.trust import PublicKeys, RecordSigner, SigningKey, TrustError, TrustStore

KEY = SigningKey(bytes(range(32)))
NODE = builders.node("a", 2, agent=True)
OPEN = TrustPolicy(takeover_began=100)
GPUSHARE = {"aliyun.com/gpu-mem": 8}
MARKS = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "8"}


def running(uid="u0", marks=None, limits=GPUSHARE, created=50, **facts):
    facts = {"phase": Phase.RUNNING, "node": "a", "version": 3, **facts}
    annotations = MARKS if marks is None else marks
    return builders.pod(
        limits=limits, uid=uid, name=uid, annotations=annotations, created=created, **facts
    )


class Scene:
    """A take-over over fakes; `started` is what the node's agent publishes."""

    def __init__(self, *pods, started=None, policy=OPEN):
        self.state, self.writer = FakeState(NODE), FakeWriter(*pods)
        self.state.see(*pods)
        self.trust = TrustStore(PublicKeys({KEY.id: KEY.public}), policy)
        binder = Binder(PodQueries(self.state), self.writer, BindTimeouts(wall=lambda: 7))
        binder.signer = RecordSigner(lambda: KEY, lambda: 3)
        text = None if started is None else write_started_gpus(started)
        annotations = {} if text is None else {STARTED_GPUS: text}
        notice = NodeNotice("a", annotations=annotations)
        self.taking = TakeOver(binder, self.trust, {"a": notice}.get)

    def look(self, times=1):
        async def turn():
            for _ in range(times):
                await self.taking.look()

        asyncio.run(turn())
        return self

    def standing(self, uid="u0"):
        return judge(self.writer.pods["default", uid], NODE, self.trust).standing

    @property
    def problems(self):
        return [(each.subject, each.trouble) for each in self.taking.problems]


def given(gpu=1, uid="u0"):
    return {uid: {"c0": (f"GPU-a-{gpu}",)}}


def test_pod_whose_marks_agree_with_its_node_is_signed_once_in_one_patch():
    scene = Scene(running(), started=given()).look(times=3)

    assert scene.standing() is Standing.SIGNED
    assert scene.writer.calls["annotate_pod"] == 1
    assert scene.problems == []


def test_signed_record_holds_the_gpu_that_was_given():
    scene = Scene(running(), started=given()).look()

    verdict = judge(scene.writer.pods["default", "u0"], NODE, scene.trust)
    assert verdict.signed.allocation.gpus == (1,)
    assert verdict.signed.epoch == 3


def test_marks_of_its_system_stay_as_they_are():
    scene = Scene(running(), started=given()).look()

    assert MARKS.items() <= scene.writer.pods["default", "u0"].annotations.items()


def test_pod_whose_marks_disagree_is_reported_and_not_written():
    scene = Scene(running(), started=given(gpu=0)).look()

    assert scene.writer.writes == 0
    (problem,) = scene.taking.problems
    assert (problem.subject, problem.trouble) == ("default/u0", "TakeOverMismatch")
    assert "marked for GPU-a-1, and was given GPU-a-0" in problem.detail


def test_pod_whose_key_was_revoked_is_signed_again():
    revoked = SigningKey(bytes(range(1, 33)))
    granted = Allocation("a", (ContainerAllocation("c0", (builders.piece(1, 0, 8192),)),))
    text = write_signed_record(granted, NODE, epoch=1, now_ns=1)
    marks = {**MARKS, ALLOCATION: text, SIGNATURE: revoked.sign("u0", text)}

    scene = Scene(running(marks=marks), started=given()).look()

    assert scene.standing() is Standing.SIGNED


def test_one_event_tells_the_owner_of_a_mismatch():
    scene = Scene(running(), started=given(gpu=0)).look(times=3)

    ((name, event),) = scene.writer.events
    assert (name, event.reason) == ("u0", "TakeOverMismatch")


def test_pod_whose_system_names_no_gpus_is_signed_for_those_it_has():
    pod = running(limits={"nvidia.com/gpu": 1}, marks={})
    scene = Scene(pod, started=given(gpu=0)).look()

    verdict = judge(scene.writer.pods["default", "u0"], NODE, scene.trust)
    assert verdict.signed.allocation.gpus == (0,)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"created": 150}, id="created-later"),
        pytest.param({"phase": Phase.PENDING}, id="not-running"),
        pytest.param({"deleting": True}, id="being-deleted"),
        pytest.param({"annotations": {**MARKS, SIGNATURE: "x.y"}, "created": 150}, id="forged"),
    ],
)
def test_other_pods_are_left_alone(change):
    scene = Scene(replace(running(), **change), started=given()).look()

    assert scene.writer.writes == 0
    assert scene.problems == []


@pytest.mark.parametrize("policy", [TrustPolicy(), TrustPolicy(100, 200)])
def test_nothing_is_signed_without_a_takeover_under_way(policy):
    assert Scene(running(), started=given(), policy=policy).look().writer.writes == 0


def test_node_that_publishes_nothing_is_reported_once_for_all_its_pods():
    scene = Scene(running("u0"), running("u1"))

    assert scene.look().problems == [("node/a", "TakeOverWaiting")]


def test_pod_that_the_agent_has_not_seen_yet_waits():
    scene = Scene(running(), started={})

    scene.look()

    assert (scene.writer.writes, scene.problems) == (0, [("default/u0", "TakeOverWaiting")])


def test_pod_that_changed_meanwhile_is_tried_again():
    scene = Scene(running(), started=given())
    scene.writer.answers = [WriteStatus.REFUSED]

    scene.look(times=2)

    assert scene.standing() is Standing.SIGNED


def test_extender_that_may_not_decide_signs_nothing():
    scene = Scene(running(), started=given())
    scene.state.ready = False

    assert scene.look().writer.writes == 0


def test_key_that_is_lost_while_pods_are_looked_at_does_not_end_the_takeover():
    keys = []

    def find_key():
        if not keys:
            raise TrustError("no signing key is published")
        return keys[0]

    scene = Scene(running(), started=given())
    scene.taking._binder.signer = RecordSigner(find_key, lambda: 3)
    before = scene.look().standing()
    keys.append(KEY)

    assert (before, scene.look().standing()) == (Standing.TAKE_OVER, Standing.SIGNED)
