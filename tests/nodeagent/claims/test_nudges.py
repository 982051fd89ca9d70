import asyncio

import builders
from slicewise.kube.errors import RefusedError
from slicewise.kube.local_pods import LocalPod
from slicewise.model import MiB, Percent, Phase
from slicewise.model.claim import Claim, ClaimedDevice
from slicewise.nodeagent.claims.nudges import KubeletNudger

OURS = Claim("u1", "ml", "c1", (ClaimedDevice("gpu", "n0", "gpu-0", Percent(30), MiB(1)),))


class Scene:
    def __init__(self, claim=OURS):
        self.now = 100.0
        self.touched = []
        self.prepared = set()
        self.claim = claim
        self.fail = False
        self.nudger = KubeletNudger(
            find=self.find,
            prepared=lambda uid: uid in self.prepared,
            touch=self.touch,
            clock=lambda: self.now,
        )

    async def find(self, namespace, name):
        if self.fail:
            raise RefusedError(500, "", "broken")
        return self.claim

    async def touch(self, pod):
        self.touched.append(self.now)

    def hear(self, phase=Phase.PENDING, claims=("c1",)):
        self.nudger.hear(LocalPod(builders.pod(phase=phase), claims=claims))

    def after(self, seconds):
        self.now += seconds
        asyncio.run(self.nudger.look())


def test_pod_that_waits_for_its_claim_is_touched_with_backoff():
    scene = Scene()
    scene.hear()
    for _ in range(20):
        scene.after(0.5)

    assert scene.touched == [101.0, 103.0, 107.0]


def test_pod_whose_claims_are_prepared_or_not_ours_is_never_touched():
    for scene in (Scene(), Scene(claim=None), Scene(Claim("u2", "ml", "c1"))):
        scene.prepared.add("u1")
        scene.hear()
        scene.after(60)

        assert scene.touched == []


def test_running_pods_and_pods_without_claims_are_left_alone():
    scene = Scene()
    scene.hear(claims=())
    scene.hear()
    scene.hear(phase=Phase.RUNNING)
    scene.after(60)

    assert scene.touched == []


def test_pods_are_touched_at_once_when_the_kubelet_has_just_taken_the_driver_on():
    scene = Scene()
    scene.hear()
    scene.nudger.hurry()
    scene.after(0)

    assert scene.touched == [100.0]


def test_claim_that_cannot_be_read_is_asked_for_again():
    scene = Scene()
    scene.fail = True
    scene.hear()
    scene.after(2)
    scene.fail = False
    scene.after(2)

    assert len(scene.touched) == 1
