import asyncio

import pytest

from fakes.kubelet import StartError
from nodeagent.living import gpu_paths, live

FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
CORE = "nvidia.com/vcuda-core"
OWN = {"slicewise.io/cores": 20, "slicewise.io/memory": 256}


def test_each_container_of_a_pod_gets_its_own_gpu(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (0,), (3,))
            await scene.kubelet.admit(pod)
            return [await scene.start(pod, name) for name in ("c0", "c1")]

    first, second = live(tmp_path, act)

    assert (first["env"]["NVIDIA_VISIBLE_DEVICES"], gpu_paths(first)) == ("GPU-0", {"nvidia3"})
    assert (second["env"]["NVIDIA_VISIBLE_DEVICES"], gpu_paths(second)) == ("GPU-3", {"nvidia0"})


def test_burst_of_equal_pods_in_any_order_gives_every_container_its_allocation(tmp_path):
    async def act(scene):
        async with scene.running():
            pods = [
                scene.place(FORK if at % 2 else OWN, (at % 4,), ((at + 1) % 4,)) for at in range(8)
            ]
            for pod in reversed(pods):
                await scene.kubelet.admit(pod)
            started = await asyncio.gather(
                *(scene.start(pod, name) for pod in pods for name in ("c0", "c1"))
            )
            return [edits["env"]["NVIDIA_VISIBLE_DEVICES"] for edits in started]

    allocated = [f"GPU-{at % 4}" for pod in range(8) for at in (pod, pod + 1)]
    assert live(tmp_path, act) == allocated


def test_container_waits_for_a_pod_the_watch_has_not_told_of(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (1,))
            await scene.kubelet.admit(pod)
            # The kubelet heard of the pod first.
            scene.agent.pods._pods.clear()
            starting = asyncio.create_task(scene.start(pod))
            await scene.until(lambda: scene.kubelet.lists or scene.kubelet.gets)
            scene.playground.patch("pods", pod.name, {"metadata": {"labels": {"a": "b"}}})
            return await starting

    assert live(tmp_path, act)["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


def test_pod_without_a_record_is_held_back_and_starts_once_it_has_one(tmp_path):
    async def act(scene):
        async with scene.running():
            bare = scene.place_bare({"nvidia.com/gpu": 1})
            await scene.kubelet.admit(bare)
            with pytest.raises(StartError, match=f"pod default/{bare.name} has no record"):
                await scene.start(bare)
            scene.record(bare, (2,))
            return await scene.start(bare)

    assert live(tmp_path, act)["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"


def test_agent_started_again_gives_the_same(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (0,), (3,))
            await scene.kubelet.admit(pod)
            before = await scene.start(pod)
        async with scene.running():
            again = await scene.start(pod)
            other = await scene.start(pod, "c1")
        return before, again, other["env"]["NVIDIA_VISIBLE_DEVICES"]

    before, again, other = live(tmp_path, act)

    assert before == again
    assert other == "GPU-3"


def test_kubelet_started_again_in_the_middle_disturbs_nobody(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (0,), (3,))
            await scene.kubelet.admit(pod)
            await scene.kubelet.restart()
            await scene.kubelet.until_known(CORE, "nvidia.com/vcuda-memory")
            return await scene.start(pod, "c1")

    assert live(tmp_path, act)["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-3"


def test_pod_of_a_gone_pods_name_gets_its_own_gpu(tmp_path):
    async def act(scene):
        async with scene.running():
            first = scene.place(FORK, (0,), name="same")
            await scene.kubelet.admit(first)
            await scene.start(first)
            scene.delete(first)
            second = scene.place(FORK, (2,), name="same")
            await scene.kubelet.admit(second)
            return await scene.start(second)

    assert live(tmp_path, act)["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"


def test_pod_of_a_gone_pods_name_and_units_waits_for_the_watch_and_gets_its_own_gpu(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            first = scene.place(FORK, (0,), name="same")
            units = await scene.kubelet.admit(first)
            await scene.start(first)
            objects = agent._pod_informer._objects
            held_back, handle = [], objects._handle
            objects._handle = held_back.extend
            scene.delete(first)
            second = scene.place(FORK, (2,), name="same")
            # All other units of the node are taken.
            scene.kubelet.pods["default", "same"] = units
            scene.kubelet.write_checkpoint(second)
            starting = asyncio.create_task(scene.start(second))
            await scene.until(lambda: len(held_back) > 1)
            await asyncio.sleep(0.2)
            handle(held_back)
            return await starting

    assert live(tmp_path, act)["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"


def test_record_that_the_watch_keeps_back_is_read_once_as_a_last_resort(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place_bare({"nvidia.com/gpu": 1})
            await scene.until(lambda: agent.pods.by_uid(pod.uid))
            await scene.kubelet.admit(pod)
            agent._pod_informer._objects._handle = lambda _: None
            scene.record(pod, (3,))
            edits = await scene.start(pod)
            reads = sum(count for call, count in agent.requests.items() if call[0] == "get")
            return edits["env"]["NVIDIA_VISIBLE_DEVICES"], reads

    assert live(tmp_path, act) == ("GPU-3", 1)
