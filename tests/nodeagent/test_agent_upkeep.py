"""What the agent writes, keeps and removes around the containers it serves."""

import asyncio
import errno
import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

import builders
from fakes import signing
from fakes.kubelet import StartError
from nodeagent.living import gpu_paths, hardware, live
from slicewise.dialects import ALLOCATION
from slicewise.model import Container, Role

FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
SHARE = {"aliyun.com/gpu-mem": 1}
OWN = {"slicewise.io/cores": 20, "slicewise.io/memory": 256}
ELASTIC = {"elasticgpu.io/gpu-core": 20, "elasticgpu.io/gpu-memory": 256}
WHOLE = {"nvidia.com/gpu": 1}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def annotations(scene, pod):
    return scene.get(pod)["metadata"]["annotations"]


def patches(scene):
    return sum(scene.playground.writes("patch", "pods").values())


def test_flags_of_a_pod_are_written_in_one_call_for_all_its_containers(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place(FORK, (0,), (3,))
            await scene.kubelet.admit(pod)
            for name in ("c0", "c1", "c0"):
                await scene.start(pod, name)
            await agent.flags.drain()
            return annotations(scene, pod), scene.get(pod)["metadata"]["labels"], patches(scene)

    flags, labels, calls = live(tmp_path, act)

    assert flags["nvidia.com/gpu-assigned"] == "true"
    assert flags["nvidia.com/predicate-gpu-idx-0"] == "3"
    assert flags["nvidia.com/predicate-gpu-idx-1"] == "0"
    assert labels["tydic.io/bind-phase"] == "success"
    assert calls == 1


def test_flag_survives_a_restart_without_being_written_again(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place(SHARE, (1,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            await agent.flags.drain()
        async with scene.running() as agent:
            await scene.start(pod)
            await agent.flags.drain()
            return annotations(scene, pod)["ALIYUN_COM_GPU_MEM_ASSIGNED"], patches(scene)

    assert live(tmp_path, act, memory=4096) == ("true", 1)


@pytest.mark.parametrize("limits", [OWN, ELASTIC, WHOLE], ids=["own", "elastic", "nvidia"])
def test_systems_without_a_flag_cost_no_call(tmp_path, limits):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place(limits, (1,))
            await scene.kubelet.admit(pod)
            edits = await scene.start(pod)
            await agent.flags.drain()
            return gpu_paths(edits), patches(scene)

    assert live(tmp_path, act) == ({"nvidia2"}, 0)


def test_container_of_core_and_memory_is_described_whichever_is_asked_about_first(tmp_path):
    async def act(scene):
        async with scene.running():
            found = []
            for _ in range(4):
                pod = scene.place(ELASTIC, (2,))
                await scene.kubelet.admit(pod)
                edits = await scene.start(pod)
                found.append((gpu_paths(edits), edits["env"][VISIBLE], len(edits["hooks"])))
            return found

    assert live(tmp_path, act, seed=3) == [({"nvidia1"}, "none", 0)] * 4


def test_elastic_links_point_at_the_gpu_while_the_pod_lives(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place({"elasticgpu.io/gpu-core": 20}, (0,))
            await scene.kubelet.admit(pod)
            digest = (await scene.start(pod))["env"]["GPU"]
            link = scene.dev / f"elastic-gpu-{digest}-0"
            target = os.readlink(link)
            scene.delete(pod)
            control = scene.dev / f"elastic-gpuctl-{digest}-0"
            await scene.until(lambda: not (link.is_symlink() or control.is_symlink()))
            return target, sorted(path.name for path in scene.dev.iterdir())

    target, names = live(tmp_path, act, sweep_seconds=0.05)

    assert target.endswith("dev/nvidia3")
    assert not [name for name in names if name.startswith("elastic")]


def test_leftovers_of_gone_pods_are_removed_and_those_in_use_stay(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            gone, stays = scene.place(FORK, (0,)), scene.place(FORK, (1,))
            for pod in (gone, stays):
                await scene.kubelet.admit(pod)
                await scene.start(pod)
            scene.delete(gone)
            await scene.until(lambda: len(agent.services.specs.read()) == 1)
            await scene.until(lambda: len(list((scene.root / "vm").iterdir())) == 1)
            edits = scene.edits(scene.kubelet.pods["default", stays.name]["c0"])
            return stays, edits["env"][VISIBLE], os.listdir(scene.root / "vm")

    stays, device, folders = live(tmp_path, act)

    assert device == "GPU-1"
    assert folders == [stays.uid]


def test_spec_of_a_pod_the_api_forgot_stays_while_the_kubelet_holds_its_units(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place(OWN, (0,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            scene.playground.delete("pods", pod.name, grace=0)
            await scene.until(lambda: len(agent.pods) == 0)
            for _ in range(3):
                await agent.garbage.look()
            kept = len(agent.services.specs.read())
            scene.kubelet.remove(pod)
            await scene.until(lambda: not agent.services.specs.read())
            return kept

    assert live(tmp_path, act) == 2


def test_spec_that_is_written_for_a_new_pod_of_the_same_units_is_no_leftover(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            gone = scene.place(WHOLE, (0,))
            units = await scene.kubelet.admit(gone)
            await scene.start(gone)
            scene.delete(gone)
            await scene.until(lambda: len(agent.pods) == 0)
            await agent.garbage.look()
            listing, started = agent._edges.holders.list, []

            async def list_just_before_the_next_pod():
                held = await listing()
                pod = scene.place(WHOLE, (1,))
                scene.kubelet.pods["default", pod.name] = units
                await scene.start(pod)
                started.append(pod.uid)
                return held

            agent.garbage._holders = SimpleNamespace(list=list_just_before_the_next_pod)
            await agent.garbage.look()
            return started, [owner.uid for owner in agent.services.specs.read().values()]

    started, owners = live(tmp_path, act, sweep_seconds=600.0)
    assert owners == started


def test_truncated_spec_is_written_anew_before_the_next_start(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (2,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            (path,) = scene.cdi.glob("slicewise-*.json")
            path.write_bytes(path.read_bytes()[:40])
            return await scene.start(pod)

    assert live(tmp_path, act)["env"][VISIBLE] == "GPU-2"


def test_specs_lost_in_a_reboot_are_written_again(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (2,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
        shutil.rmtree(scene.cdi)
        shutil.rmtree(scene.root / "vm")
        async with scene.running():
            edits = await scene.start(pod)
            return edits["env"][VISIBLE], (scene.root / "vm" / pod.uid / "c0").is_dir()

    assert live(tmp_path, act) == ("GPU-2", True)


def test_full_disk_holds_back_one_container_and_nobody_else(tmp_path, monkeypatch):
    async def act(scene):
        async with scene.running():
            first, second = scene.place(OWN, (0,)), scene.place(OWN, (1,))
            for pod in (first, second):
                await scene.kubelet.admit(pod)
            with monkeypatch.context() as patched:
                patched.setattr(os, "fsync", _no_space)
                with pytest.raises(StartError, match="No space left on device"):
                    await scene.start(first)
            gpus = [(await scene.start(pod))["env"][VISIBLE] for pod in (second, first)]
            scratch = [path for path in scene.cdi.iterdir() if not path.name.startswith("slice")]
            return gpus, scratch

    assert live(tmp_path, act) == (["GPU-1", "GPU-0"], [])


def _no_space(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_uid_that_would_leave_its_folder_is_held_back_with_a_reason(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pod = scene.place(FORK, (0,))
            await scene.kubelet.admit(pod)
            await scene.until(lambda: agent.pods.by_uid(pod.uid))
            local = agent.pods.by_uid(pod.uid)
            marks = signing.sign("../../evil", local.pod.annotations[ALLOCATION])
            pod_of_evil = replace(local.pod, uid="../../evil", version=10**9, annotations=marks)
            evil = replace(local, pod=pod_of_evil)
            agent.pods._pods.clear()
            agent.pods.put(evil)
            with pytest.raises(StartError, match=r"pod UID '\.\./\.\./evil': expected letters"):
                await scene.start(pod)

    live(tmp_path, act)

    assert not list(tmp_path.rglob("evil*"))


def test_missing_device_node_of_a_gpu_is_named(tmp_path):
    async def act(scene):
        async with scene.running():
            (scene.dev / "nvidia3").unlink()
            pod = scene.place(OWN, (0,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)

    with pytest.raises(StartError, match="nvidia3: no such device node; load the driver"):
        live(tmp_path, act)


def test_nvidias_edits_for_the_chosen_gpus_are_merged_in(tmp_path):
    def write_vendor(scene):
        node = {"deviceNodes": [{"path": "/dev/nvidia2"}]}
        library = {"hostPath": "/usr/lib/libcuda.so", "containerPath": "/usr/lib/libcuda.so"}
        common = {
            "env": [f"{VISIBLE}=void", "CUDA=yes"],
            "mounts": [library],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk"}],
        }
        device = {"name": "GPU-1", "containerEdits": node}
        spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
        (scene.root / "vendor").mkdir()
        text = json.dumps({**spec, "containerEdits": common})
        (scene.root / "vendor" / "nvidia.json").write_text(text)

    async def act(scene):
        write_vendor(scene)
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            return await scene.start(pod)

    edits = live(tmp_path, act)

    assert edits["env"][VISIBLE] == "GPU-1"
    assert edits["env"]["CUDA"] == "yes"
    assert edits["mounts"] == {"/usr/lib/libcuda.so": "/usr/lib/libcuda.so"}
    assert edits["devices"]["/dev/nvidia2"] == "/dev/nvidia2"
    assert len(edits["hooks"]) == 1


def test_gpu_that_becomes_unhealthy_takes_its_units_with_it_and_brings_them_back(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            unhealthy = [replace(gpu, healthy=gpu.index != 1) for gpu in scene.gpus]
            agent.inventory.take(hardware(unhealthy))
            core = "nvidia.com/vcuda-core"
            await scene.kubelet.until(lambda: scene.kubelet.allocatable(core) == 300)
            agent.inventory.take(hardware(scene.gpus))
            await scene.kubelet.until(lambda: scene.kubelet.allocatable(core) == 400)
            return scene.kubelet.registrations.count(core)

    assert live(tmp_path, act) == 1


class Turns:
    """A runtime that knows which containers have ended well."""

    def __init__(self):
        self.done = set()

    async def finished(self, _uid):
        return frozenset(self.done)


def test_init_container_and_the_one_that_takes_its_units_over_each_get_their_own(tmp_path):
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
            first = await scene.start(pod, "early")
            again = await scene.start(pod, "early")
            turns.done.add("early")
            last = await scene.start(pod, "late")
            return [edits["env"][VISIBLE] for edits in (first, again, last)]

    assert live(tmp_path, act, turns=turns) == ["GPU-1", "GPU-1", "GPU-3"]


def test_init_container_that_nobody_lists_is_found_in_the_kubelets_notes(tmp_path):
    async def act(scene):
        async with scene.running():
            early = Container("early", limits=WHOLE, role=Role.INIT)
            pod = scene.bind(scene.allocate(builders.pod(early, Container("main")), (2,)))
            await scene.kubelet.admit(pod)
            with pytest.raises(StartError, match=r"no container holds these 1 of nvidia\.com/gpu"):
                await scene.start(pod, "early")
            scene.kubelet.write_checkpoint(pod)
            return await scene.start(pod, "early")

    assert live(tmp_path, act)["env"][VISIBLE] == "GPU-2"


def test_burst_of_starts_costs_the_api_server_nothing_where_no_flag_is_needed(tmp_path):
    async def act(scene):
        async with scene.running() as agent:
            pods = [scene.place(OWN, (at % 4,)) for at in range(12)]
            await scene.until(lambda: len(agent.pods) == 12)
            for pod in pods:
                await scene.kubelet.admit(pod)
            before = sum(agent.requests.values())
            await asyncio.gather(*(scene.start(pod) for pod in pods))
            return sum(agent.requests.values()) - before, agent.starts.granted

    assert live(tmp_path, act) == (0, 24)
