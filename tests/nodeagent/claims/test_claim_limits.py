"""Containers that received their share by a claim are held to it as those of other pods are."""

from dataclasses import replace

import pytest

import builders
from nodeagent.claims.test_claim_handler import Scene, claim, device
from nodeagent.limits.test_container_limits import HOOK, INSIDE, build_limits
from slicewise.kube.local_pods import LocalPod
from slicewise.kube.watch import Seen
from slicewise.kubelet.errors import DeniedError
from slicewise.model.claim import ClaimUser
from slicewise.nodeagent.claims import claim_handler
from slicewise.nodeagent.claims.claim_limits import ClaimLimits, find_lone_requests
from slicewise.nodeagent.limits.grant_file import GrantFlags, read_grant
from slicewise.nodeagent.node_pods import NodePods

NODE = builders.node(gpus=[builders.gpu(at, uuid=f"GPU-n0-{at}", isolation=HOOK) for at in (0, 1)])
MIB = 1 << 20


def user(*uses, uid="p1"):
    return LocalPod(builders.pod(uid=uid, name=uid, namespace="ml", node="n0"), uses=uses)


class LimitedScene(Scene):
    def __init__(self, folder, *users):
        self.users = users
        super().__init__(folder)

    def restart(self):
        super().restart()
        self.preparer._node = lambda: NODE
        pods = NodePods("n0")
        pods.apply([Seen(each) for each in self.users])
        self.injector = build_limits(self.folder)
        self.preparer.limits = ClaimLimits(self.injector), pods

    def prepare(self, asked):
        return super().prepare(replace(asked, users=(ClaimUser("p1", "p1"),)))

    def mounts(self, uid="u1", at=0):
        edits = self.spec(uid)["devices"][at]["containerEdits"]
        return {each["containerPath"] for each in edits.get("mounts", ())}

    def grant(self, request="gpu"):
        path = self.injector.folders.folder("u1", request) / "grant"
        return read_grant(path.read_bytes())[0]


ONE = ("c0", "claim-u1", "")


def test_share_comes_with_the_library_and_a_grant_of_exactly_its_amounts(tmp_path):
    scene = LimitedScene(tmp_path, user(ONE))

    scene.prepare(claim())

    assert scene.mounts() >= INSIDE
    (gpu,) = scene.grant().devices
    assert (gpu.uuid, gpu.memory_bytes, gpu.cores) == ("GPU-n0-0", 4096 * MIB, 3000)
    assert GrantFlags.GATE_COMPUTE in scene.grant().flags


def test_memory_alone_is_limited_and_compute_is_not_paced(tmp_path):
    scene = LimitedScene(tmp_path, user(ONE))

    scene.prepare(claim("u1", device(cores=0)))

    assert scene.grant().devices[0].cores == 0
    assert GrantFlags.GATE_COMPUTE not in scene.grant().flags


def test_whole_gpu_is_not_limited(tmp_path):
    scene = LimitedScene(tmp_path, user(ONE))

    scene.prepare(claim("u1", device(cores=100, memory=NODE.gpus[0].memory)))

    assert not scene.mounts() & INSIDE


@pytest.mark.parametrize(
    ("uses", "lone"),
    [
        ([("c0", "claim-u1", "a"), ("c1", "claim-u1", "b")], {"a", "b"}),
        ([("c0", "claim-u1", "")], set()),
        ([("c0", "claim-u1", "a"), ("c0", "another", "")], set()),
        ([("c0", "claim-u1", "a"), ("c1", "claim-u1", "")], set()),
        ([("c0", "claim-u1", "b")], {"b"}),
    ],
)
def test_only_requests_that_containers_use_alone_are_limited(uses, lone):
    asked = claim("u1", device("a"), device("b", gpu=1))

    assert find_lone_requests(asked, [user(*uses)]) == lone


def test_files_are_made_again_after_a_restart_and_removed_at_the_end(tmp_path):
    scene = LimitedScene(tmp_path, user(ONE))
    scene.prepare(claim())
    scene.injector.folders.remove("u1")
    scene.restart()

    scene.prepare(claim())
    assert scene.grant().devices[0].memory_bytes == 4096 * MIB
    scene.unprepare(claim())

    assert scene.injector.folders.pods() == ()


def test_claim_of_no_known_pod_is_refused_until_one_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_handler, "_USER_SECONDS", 0.0)
    scene = LimitedScene(tmp_path)

    with pytest.raises(DeniedError, match="none of its pods is known on this node yet"):
        scene.prepare(claim())

    assert len(scene.store) == 0
