"""A runtime without CDI: what is answered at admission is verified before every start."""

import asyncio
import time

import pytest

import builders
from fakes.kubelet import AdmissionError, StartError
from nodeagent.living import live
from slicewise.model import Container, Role
from slicewise.nodeagent.settings import IdentityMode

FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
CORE = "nvidia.com/vcuda-core"
WHOLE = {"nvidia.com/gpu": 1}


def match(root, act, **facts):
    return live(root, act, identity=IdentityMode.MATCH, **facts)


async def start(scene, pod, container="c0"):
    """The GPU a container was given, once it may start."""
    held = await scene.kubelet.start_container(pod, container)
    return held.answers[CORE].envs["NVIDIA_VISIBLE_DEVICES"]


def recorded(scene, pod, container="c0"):
    """The GPUs the pod's record allocates to the container now."""
    local = scene.agent.pods.by_uid(pod.uid)
    allocation = scene.agent.services.allocations.read(local).allocation
    return [f"GPU-{piece.gpu}" for piece in allocation.slices_of(container)]


def test_pod_that_is_being_admitted_is_known_by_holding_nothing_yet(tmp_path):
    async def act(scene):
        async with scene.running():
            pods = [scene.place(FORK, (at % 4,), ((at + 1) % 4,)) for at in range(8)]
            await scene.until(lambda: len(scene.agent.pods) == 8)
            for pod in reversed(pods):
                await scene.kubelet.admit(pod)
            given = [await start(scene, pod, name) for pod in pods for name in ("c0", "c1")]
            return given, scene.agent.starts.held_back

    expected = [f"GPU-{(at + more) % 4}" for at in range(8) for more in (0, 1)]
    assert match(tmp_path, act) == (expected, 0)


def test_answer_brings_device_nodes_and_a_folder_that_is_linked_before_the_start(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (1,))
            await scene.kubelet.admit(pod)
            held = await scene.kubelet.start_container(pod, "c0")
            answer = held.answers[CORE]
            mounts = {each.container_path: each.host_path for each in answer.mounts}
            folder = (scene.root / mounts["/etc/vcuda"]).resolve()
            return pod, answer, folder

    pod, answer, folder = match(tmp_path, act)

    assert [each.container_path for each in answer.devices] == [
        "/dev/nvidia2",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    ]
    assert answer.annotations["nvidia.com/vcuda-device"] == "/dev/nvidia2"
    assert answer.cdi_devices == ()
    assert folder.name == pod.uid
    assert (folder / "c0" / "vcuda.config").stat().st_size == 8240


def swap_answers(scene):
    """Admissions are taken for each other's, as a guess by size and age may."""
    plugin = next(each for each in scene.agent.plugins if each.offer.resource == CORE)
    choose = plugin._handler._candidates
    plugin._handler._candidates = lambda count, _: list(reversed(choose(count, None)))


def test_container_with_gpus_of_another_pod_never_starts_on_them(tmp_path):
    async def act(scene):
        async with scene.running():
            pods = [scene.place(FORK, (0,)), scene.place(FORK, (1,))]
            await scene.until(lambda: len(scene.agent.pods) == 2)
            swap_answers(scene)
            for pod in pods:
                await scene.kubelet.admit(pod)
            with pytest.raises(StartError, match="received the GPUs of another pod"):
                await start(scene, pods[0])
            return [recorded(scene, pod) for pod in pods]

    assert match(tmp_path, act) == [["GPU-0"], ["GPU-1"]]


def test_answers_are_known_after_a_restart_of_the_agent(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (3,))
            await scene.kubelet.admit(pod)
        async with scene.running():
            return await start(scene, pod)

    assert match(tmp_path, act) == "GPU-3"


def test_pod_that_was_allocated_nothing_is_rejected_with_a_reason(tmp_path):
    async def act(scene):
        async with scene.running():
            await scene.kubelet.admit(scene.place_bare(FORK))

    with pytest.raises(AdmissionError, match=r"no pod of this node is allocated 20 of nvidia\.com"):
        match(tmp_path, act)


def test_record_that_comes_a_moment_after_the_admission_is_waited_for(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place_bare(FORK)
            admitting = asyncio.create_task(scene.kubelet.admit(pod))
            await scene.until(lambda: scene.kubelet.lists)
            scene.record(pod, (2,))
            await admitting
            return await start(scene, pod)

    assert match(tmp_path, act, record_seconds=10.0) == "GPU-2"


def test_pods_without_a_record_hold_up_admissions_once_however_many_they_are(tmp_path):
    async def act(scene):
        async with scene.running():
            pods = [scene.place_bare(FORK) for _ in range(20)]
            await scene.until(lambda: len(scene.agent.pods) == 20)
            scene.agent.pods._clock = lambda: time.monotonic() + 3600
            for pod in pods:
                with pytest.raises(AdmissionError):
                    await scene.kubelet.admit(pod)

    match(tmp_path, act, record_seconds=3600.0)


def test_node_says_how_owners_are_known(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            return agent.annotations["slicewise.io/agent"]

    assert '"identity":"match"' in match(tmp_path, act)


class Turns:
    """A runtime that knows which containers have ended well."""

    def __init__(self):
        self.done = set()

    async def finished(self, _uid):
        return frozenset(self.done)


def test_container_that_takes_over_an_init_containers_units_has_an_answer_of_its_own(tmp_path):
    turns = Turns()

    async def act(scene):
        async with scene.running():
            each = [
                Container("early", limits=WHOLE, role=Role.INIT),
                Container("late", limits=WHOLE),
            ]
            pod = scene.bind(scene.allocate(builders.pod(*each), (1,), (3,)))
            held = await scene.kubelet.admit(pod)
            assert held["early"].ids == held["late"].ids
            scene.kubelet.write_checkpoint(pod)
            await scene.kubelet.start_container(pod, "early")
            turns.done.add("early")
            await scene.kubelet.start_container(pod, "late")
            answers = (held[name].answers["nvidia.com/gpu"] for name in ("early", "late"))
            return [answer.envs["NVIDIA_VISIBLE_DEVICES"] for answer in answers]

    assert match(tmp_path, act, turns=turns) == ["GPU-1", "GPU-3"]


def test_units_that_come_back_to_another_pod_bring_no_old_answer(tmp_path):
    async def act(scene):
        async with scene.running():
            given = []
            for at in (0, 2):
                pod = scene.place(WHOLE, (at,), (at + 1,))
                held = await scene.kubelet.admit(pod)
                for name in ("c0", "c1"):
                    await scene.kubelet.start_container(pod, name)
                    answer = held[name].answers["nvidia.com/gpu"]
                    given.append(answer.envs["NVIDIA_VISIBLE_DEVICES"])
                scene.delete(pod)
            return given

    gpus = match(tmp_path, act, gpus=4, sweep_seconds=60.0, dialects=("nvidia",))

    assert gpus == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
