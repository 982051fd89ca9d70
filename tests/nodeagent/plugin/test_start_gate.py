"""What starts: signed records alone, never more than a GPU has, and always what was granted."""

import pytest

from fakes import signing
from fakes.kubelet import AdmissionError, StartError
from nodeagent.living import live
from slicewise.dialects import ALLOCATION
from slicewise.dialects.shared.signed_record import SIGNATURE
from slicewise.model import TrustPolicy
from slicewise.nodeagent.files import FileError
from slicewise.nodeagent.plugin.refusals import RefusalCause
from slicewise.nodeagent.settings import IdentityMode
from slicewise.trust import TrustStore

OWN = {"slicewise.io/cores": 60, "slicewise.io/memory": 1024}
FORK = {"nvidia.com/vcuda-core": 60, "nvidia.com/vcuda-memory": 1024}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MODES = pytest.mark.parametrize("mode", IdentityMode)


def place(scene, limits, index, **facts):
    return scene.place(limits, (index,), **facts)


async def admitted(scene, pod):
    await scene.kubelet.admit(pod)
    await scene.until(lambda: scene.agent.pods.by_uid(pod.uid))
    return pod


async def admit_and_start(scene, pod):
    await scene.kubelet.admit(pod)
    return await scene.kubelet.start_container(pod, "c0")


async def refused(scene, pod, words, cause):
    """The start fails with these words, is counted, and an Event on the pod says so."""
    before = scene.agent.refusals.counts[cause]
    with pytest.raises(StartError, match=words):
        await scene.start(pod)
    assert scene.agent.refusals.counts[cause] == before + 1
    await scene.until(lambda: scene.playground.objects("events"))
    notes = [each["message"] for each in scene.playground.objects("events")]
    assert any(f"pod default/{pod.name}" in note for note in notes)


@MODES
def test_grant_is_withdrawn_when_the_container_cannot_be_prepared(tmp_path, mode, monkeypatch):
    def fail(*_):
        raise FileError("the disk is gone")

    async def act(scene):
        async with scene.running() as agent:
            pod = await admitted(scene, place(scene, FORK, 1))
            gate, handlers = agent.services.gate, [each._handler for each in agent.plugins]
            with monkeypatch.context() as patched:
                for each in handlers:
                    patched.setattr(type(each._services), "prepare", fail)
                with pytest.raises(StartError, match="the disk is gone"):
                    await scene.kubelet.start_container(pod, "c0")
            before = gate.book.find(pod.uid, "c0")
            await scene.kubelet.start_container(pod, "c0")
            return before, gate.book.find(pod.uid, "c0") is not None

    assert live(tmp_path, act, identity=mode) == (None, True)


def test_record_that_nobody_signed_starts_nothing(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = await admitted(scene, place(scene, FORK, 1, signed=False))
            words = "annotation slicewise.io/signature: its record is not signed; delete the pod"
            await refused(scene, pod, words, RefusalCause.UNSIGNED)

    live(tmp_path, act)


def test_record_without_any_published_key_waits_and_starts_once_there_is_one(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = await admitted(scene, place(scene, OWN, 1))
            words = "no public key is published yet; start the extender"
            await refused(scene, pod, words, RefusalCause.NO_KEYS)
            scene.trust.keys = signing.trust().keys
            agent.trust_changed()
            return (await scene.start(pod))["env"][VISIBLE]

    assert live(tmp_path, act, trust=TrustStore()) == "GPU-1"


def test_record_of_another_key_is_refused(tmp_path):
    other = signing.SigningKey(bytes(32))

    async def act(scene):
        async with scene.running():
            pod = place(scene, OWN, 1)
            scene.annotate(pod, {SIGNATURE: other.sign(pod.uid, pod.annotations[ALLOCATION])})
            await admitted(scene, pod)
            await refused(scene, pod, "not published", RefusalCause.UNKNOWN_KEY)

    live(tmp_path, act)


def test_record_of_another_pod_is_refused_at_once(tmp_path):
    async def act(scene):
        async with scene.running():
            donor, thief = place(scene, OWN, 1), place(scene, OWN, 2)
            scene.annotate(thief, {key: donor.annotations[key] for key in (ALLOCATION, SIGNATURE)})
            await admitted(scene, thief)
            await refused(scene, thief, "not what was signed", RefusalCause.FORGED)

    live(tmp_path, act, record_seconds=3600.0)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        pytest.param({SIGNATURE: None}, "not signed", id="signature-removed"),
        pytest.param({ALLOCATION: "{}"}, "not what was signed", id="record-edited"),
    ],
)
def test_edited_record_keeps_a_container_from_starting_again(tmp_path, marks, words):
    async def act(scene):
        async with scene.running() as agent:
            pod = await admitted(scene, place(scene, OWN, 1))
            await scene.start(pod)
            scene.annotate(pod, marks)
            await scene.until(lambda: agent.pods.pods()[0].trouble)
            with pytest.raises(StartError, match=words):
                await scene.start(pod)
            (known,) = agent.pods.pods()
            return known.allocation.gpus

    assert live(tmp_path, act) == (1,)


@MODES
def test_older_record_of_the_same_pod_never_moves_a_container(tmp_path, mode):
    async def act(scene):
        pod = place(scene, FORK, 1)
        async with scene.running():
            await admitted(scene, pod)
            await scene.kubelet.start_container(pod, "c0")
        scene.record(pod, (2,))
        async with scene.running() as agent:
            await scene.until(agent.pods.pods)
            with pytest.raises(StartError, match=r"GPU-2|received the GPUs of another pod"):
                await scene.kubelet.start_container(pod, "c0")
            return agent.pods.pods()[0].allocation.gpus

    assert live(tmp_path, act, identity=mode) == (1,)


@MODES
def test_gpu_that_is_granted_is_not_granted_again_after_a_restart(tmp_path, mode):
    async def act(scene):
        async with scene.running():
            first = await admitted(scene, place(scene, FORK, 3))
            await scene.kubelet.start_container(first, "c0")
        async with scene.running():
            late = await admitted(scene, place(scene, FORK, 3))
            words = f"gpu 3: pod default/{late.name} needs 60 percent, pod default/{first.name}"
            await refused(scene, late, words, RefusalCause.CONFLICT)
            return first.name, list(scene.agent.gate.conflicts().values())

    name, conflicts = live(tmp_path, act, identity=mode)

    assert len(conflicts) == 1
    assert f"pod default/{name} holds 60 of 100 percent" in conflicts[0]


@MODES
def test_marks_written_by_hand_are_refused_on_every_path(tmp_path, mode):
    async def act(scene):
        async with scene.running():
            pod = place(scene, FORK, 1, signed=False)
            with pytest.raises((StartError, AdmissionError), match="its record is not signed"):
                await admit_and_start(scene, pod)
            assert scene.agent.refusals.counts[RefusalCause.UNSIGNED] == 1

    live(tmp_path, act, identity=mode)


def test_of_two_records_on_one_gpu_the_older_loses(tmp_path):
    async def act(scene):
        async with scene.running():
            old, new = place(scene, OWN, 0), place(scene, OWN, 0)
            await admitted(scene, old)
            await admitted(scene, new)
            await refused(scene, old, f"pod default/{new.name} holds", RefusalCause.CONFLICT)
            return (await scene.start(new))["env"][VISIBLE]

    assert live(tmp_path, act) == "GPU-0"


class Runtime:
    """A runtime in which a pod's containers run until it is told otherwise."""

    def __init__(self):
        self.names = frozenset({"c0"})

    async def running(self, _uid):
        return self.names

    async def finished(self, _uid):
        return frozenset()


def test_pod_deleted_by_force_holds_its_gpu_until_its_container_has_ended(tmp_path):
    runtime = Runtime()

    async def act(scene):
        async with scene.running() as agent:
            first = await admitted(scene, place(scene, OWN, 0))
            await scene.start(first)
            running = [{"name": "c0", "containerID": "x://a", "state": {"running": {}}}]
            status = {"status": {"phase": "Running", "containerStatuses": running}}
            scene.playground.patch("pods", first.name, status, status=True)
            await scene.until(lambda: agent.pods.pods()[0].containers[0].running)
            scene.delete(first)
            await scene.until(lambda: not agent.pods.pods())
            second = await admitted(scene, place(scene, OWN, 0))
            await refused(scene, second, f"pod default/{first.name} holds", RefusalCause.CONFLICT)
            runtime.names = frozenset()
            return (await scene.start(second))["env"][VISIBLE]

    assert live(tmp_path, act, turns=runtime, sweep_seconds=60.0) == "GPU-0"


@pytest.mark.parametrize("waiting", [None, {"waiting": {"reason": "ContainerCreating"}}])
def test_pod_deleted_by_force_before_its_status_tells_of_its_start_holds_its_gpu(tmp_path, waiting):
    runtime = Runtime()

    async def act(scene):
        async with scene.running() as agent:
            first = await admitted(scene, place(scene, OWN, 0))
            await scene.start(first)
            if waiting is not None:
                # It says so for as long as a postStart hook takes.
                states = [{"name": "c0", "state": waiting}]
                status = {"status": {"phase": "Pending", "containerStatuses": states}}
                scene.playground.patch("pods", first.name, status, status=True)
            scene.delete(first)
            await scene.until(lambda: not agent.pods.pods())
            second = await admitted(scene, place(scene, OWN, 0))
            await refused(scene, second, f"pod default/{first.name} holds", RefusalCause.CONFLICT)
            runtime.names = frozenset()
            return (await scene.start(second))["env"][VISIBLE]

    assert live(tmp_path, act, turns=runtime, sweep_seconds=60.0) == "GPU-0"


def test_node_of_an_original_agent_is_believed_by_its_marks(tmp_path):
    policy = TrustPolicy(original_nodes=("n*",))

    async def act(scene):
        async with scene.running():
            pod = await admitted(scene, place(scene, FORK, 1, signed=False))
            return (await scene.start(pod))["env"][VISIBLE]

    assert live(tmp_path, act, trust=signing.trust(policy)) == "GPU-1"


def test_signed_record_of_a_gpu_that_is_gone_names_it(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = place(scene, OWN, 1)
            text = pod.annotations[ALLOCATION].replace("GPU-1", "GPU-of-before")
            scene.annotate(pod, signing.sign(pod.uid, text))
            await admitted(scene, pod)
            await refused(scene, pod, "which has no GPU-of-before", RefusalCause.UNREADABLE)

    live(tmp_path, act)


def test_runtime_that_never_answers_is_not_waited_for_without_end(tmp_path):
    runtime = Runtime()

    async def act(scene):
        async with scene.running() as agent:
            first, second = place(scene, OWN, 0), place(scene, OWN, 0)
            await admitted(scene, second)
            await admitted(scene, first)
            await scene.start(second)
            runtime.names = None
            agent.pods.left_running = lambda _: True
            scene.delete(second)
            await scene.until(lambda: agent.pods.by_uid(second.uid) is None)
            for _ in range(2):
                await refused(scene, first, f"pod default/{second.name}", RefusalCause.CONFLICT)
            return (await scene.start(first))["env"][VISIBLE]

    assert live(tmp_path, act, turns=runtime, sweep_seconds=60.0) == "GPU-0"
