"""What limited containers receive, with CDI and without, and what their grants say."""

import asyncio
import os
from dataclasses import replace

import pytest

import builders
from fakes.kubelet import StartError
from nodeagent.living import live
from slicewise.dialects.shared.isolation import CEILING, ISOLATION
from slicewise.model import IsolationTier, MiB, OfferedIsolation
from slicewise.nodeagent.limits.container_limits import LimitInjector, VcudaProbe
from slicewise.nodeagent.limits.grant_file import GrantFlags, read_grant
from slicewise.nodeagent.limits.limit_folders import LimitFolders
from slicewise.nodeagent.limits.limiter_library import NAME, LimiterLibrary
from slicewise.nodeagent.settings import IdentityMode, LimitSettings

HOOK = OfferedIsolation((IsolationTier.HOOK,), (IsolationTier.HOOK,))
OWN = {"slicewise.io/cores": 20, "slicewise.io/memory": 256}
FORK = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 256}
GPUSHARE = {"aliyun.com/gpu-mem": 1}
ELASTIC = {"elasticgpu.io/gpu-core": 20, "elasticgpu.io/gpu-memory": 256}
MIB = 1 << 20
INSIDE = {
    "/etc/ld.so.preload",
    "/usr/local/slicewise/lib/libslicewise-limit.so",
    "/etc/slicewise/limit/grant",
    "/etc/slicewise/limit/usage",
}


def build_limits(root, content=b"\x7fELF library", **facts):
    source = root / NAME
    source.write_bytes(content)
    library = LimiterLibrary(source, root / "state" / "limiter")
    library.install("x86_64")
    return LimitInjector(LimitFolders(root / "limits"), library, **facts)


def limited(root, act, limits=None, **facts):
    return live(root, act, offered=HOOK, limits=limits or build_limits(root), **facts)


def grant_of(scene, pod, container="c0"):
    return read_grant((scene.limits.folders.folder(pod.uid, container) / "grant").read_bytes())[0]


def start(limits, annotations=None):
    async def act(scene):
        async with scene.running():
            pod = scene.place(limits, (1,)) if annotations is None else annotated(scene, limits)
            await scene.kubelet.admit(pod)
            edits = await scene.start(pod)
            return edits, grant_of(scene, pod), scene.gpus[1]

    def annotated(scene, limits):
        pod = builders.pod(limits=limits, name="p1", annotations=annotations)
        return scene.bind(scene.allocate(pod, (1,)))

    return act


@pytest.mark.parametrize(
    ("limits", "cores", "memory", "flags"),
    [
        pytest.param(OWN, 2000, 256, 1 | 2 | 4 | 8 | 16, id="own"),
        pytest.param(FORK, 2000, 256, 1 | 2 | 4 | 8 | 16, id="gpu-manager"),
        pytest.param(ELASTIC, 2000, 256, 1 | 2 | 4 | 8 | 16, id="elastic"),
        pytest.param(GPUSHARE, 0, 1024, 1 | 4 | 8 | 16, id="gpushare"),
    ],
)
def test_share_of_every_system_comes_with_its_grant(tmp_path, limits, cores, memory, flags):
    facts = {"dialects": ("slicewise", "tkestack", "gpushare", "elastic")}
    edits, grant, gpu = limited(tmp_path, start(limits), **facts)
    (device,) = grant.devices

    assert edits["mounts"].keys() >= INSIDE
    assert edits["env"]["SLICEWISE_ISOLATION"] == ("hook/hook" if cores else "hook/none")
    assert (device.uuid, device.memory_bytes) == (gpu.uuid, memory * MIB)
    assert (device.cores, device.ceiling, device.limit) == (cores,) * 3
    assert (device.gpu_bytes, grant.flags) == (gpu.memory * MIB, GrantFlags(flags))


def test_grant_says_what_is_taken_to_be_so_of_the_nodes_driver(tmp_path):
    limits = build_limits(tmp_path, settings=LimitSettings(timing=False, context=MiB(64)))
    _, grant, _ = limited(tmp_path, start(OWN), limits)

    assert GrantFlags.NO_TIMING in grant.flags
    assert grant.devices[0].context_bytes == 64 * MIB


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        pytest.param(OWN, {CEILING: "60"}, id="own"),
        pytest.param(FORK, {"nvidia.com/vcuda-core-limit": "60"}, id="gpu-manager"),
    ],
)
def test_soft_limit_may_grow_to_its_ceiling(tmp_path, limits, annotations):
    _, grant, _ = limited(tmp_path, start(limits, annotations))
    (device,) = grant.devices

    assert (device.cores, device.ceiling, device.limit) == (2000, 2000, 6000)


MPS = OfferedIsolation(
    (IsolationTier.HOOK, IsolationTier.MPS), (IsolationTier.HOOK, IsolationTier.MPS)
)


@pytest.mark.parametrize(
    ("wish", "cores", "flags"),
    [("mps", 2000, 1 | 2 | 4 | 8 | 16), ("memory=mps,compute=mps", 0, 1 | 4 | 8 | 16)],
)
def test_container_that_names_mps_is_its_client_and_its_sum_is_held(tmp_path, wish, cores, flags):
    limits = build_limits(tmp_path, mps_pipe=tmp_path / "pipe")
    act = start(OWN, {ISOLATION: wish})
    edits, grant, _ = live(tmp_path, act, offered=MPS, limits=limits)

    assert edits["env"]["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "pipe")
    assert edits["env"]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=256M"
    assert edits["env"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"
    assert edits["mounts"].keys() >= {str(tmp_path / "pipe"), "/dev/shm", *INSIDE}
    assert (grant.devices[0].cores, grant.flags) == (cores, GrantFlags(flags))


def test_annotations_that_a_tenant_edits_after_the_record_change_no_grant(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(FORK, (1,))
            scene.annotate(pod, {"nvidia.com/vcuda-core-limit": "100", ISOLATION: "none"})
            await scene.until(
                lambda: (
                    ISOLATION in scene.agent.pods.by_uid(pod.uid).pod.annotations
                    if scene.agent.pods.by_uid(pod.uid)
                    else False
                )
            )
            await scene.kubelet.admit(pod)
            edits = await scene.start(pod)
            return edits, grant_of(scene, pod)

    edits, grant = limited(tmp_path, act)

    assert edits["env"]["SLICEWISE_ISOLATION"] == "hook/hook"
    assert grant.devices[0].limit == 2000


def test_mounts_are_read_only_but_for_the_usage(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            specs = scene.agent.services.specs
            found = (specs.edits(name).get("mounts", ()) for name in specs.read())
            return [mount for mounts in found for mount in mounts]

    mounts = {each["containerPath"]: each["options"] for each in limited(tmp_path, act)}

    assert {path for path, options in mounts.items() if "rw" in options} == {
        "/etc/slicewise/limit/usage"
    }
    assert all({"nosuid", "nodev"} <= set(options) for options in mounts.values())


def test_without_cdi_the_answer_names_files_that_are_linked_before_the_start(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            held = await scene.kubelet.start_container(pod, "c0")
            mounts = {
                each.container_path: each
                for answer in held.answers.values()
                for each in answer.mounts
            }
            paths = {name: os.path.realpath(each.host_path) for name, each in mounts.items()}
            return pod, mounts, paths, scene.limits.folders.folder(pod.uid, "c0")

    pod, mounts, paths, folder = limited(tmp_path, act, identity=IdentityMode.MATCH)

    assert mounts.keys() >= INSIDE
    assert "by-units" in mounts["/etc/slicewise/limit/grant"].host_path
    assert paths["/etc/slicewise/limit/grant"] == str(folder / "grant")
    assert [name for name, each in mounts.items() if not each.read_only] == [
        "/etc/slicewise/limit/usage"
    ]
    assert pod.uid in str(folder)


def test_whole_gpus_and_older_records_come_without_limits(tmp_path):
    async def act(scene):
        async with scene.running():
            whole = scene.place({"slicewise.io/gpu": 1}, (0,))
            await scene.kubelet.admit(whole)
            return await scene.start(whole), scene.limits.folders.pods()

    edits, pods = limited(tmp_path, act)

    assert not edits["mounts"].keys() & INSIDE
    assert "SLICEWISE_ISOLATION" not in edits["env"]
    assert pods == ()


def test_container_whose_promise_cannot_be_kept_is_held_back_with_the_reason(tmp_path):
    limits = build_limits(tmp_path, content=b"no library")

    async def act(scene):
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            with pytest.raises(StartError) as caught:
                await scene.start(pod)
            return str(caught.value)

    refusal = limited(tmp_path, act, limits=limits)

    assert "was promised isolation hook/hook" in refusal
    assert "is no library" in refusal


def test_agent_started_again_leaves_the_files_as_they_are(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            folder = scene.limits.folders.folder(pod.uid, "c0")
            before = {name: (os.stat(folder / name).st_ino, (folder / name).read_bytes())
                      for name in ("grant", "usage")}  # fmt: skip
        async with scene.running():
            await asyncio.to_thread(scene.agent.services.specs.read)
        after = {name: (os.stat(folder / name).st_ino, (folder / name).read_bytes())
                 for name in ("grant", "usage")}  # fmt: skip
        return before == after

    assert limited(tmp_path, act)


def test_files_of_deleted_pods_are_removed(tmp_path):
    async def act(scene):
        async with scene.running():
            pod = scene.place(OWN, (1,))
            await scene.kubelet.admit(pod)
            await scene.start(pod)
            there = scene.limits.folders.pods()
            scene.delete(pod)
            await scene.until(lambda: scene.limits.folders.pods() == ())
            return there == (pod.uid,)

    assert limited(tmp_path, act)


def test_vcudas_own_library_in_the_driver_volume_limits_instead_of_ours(tmp_path):
    volume = tmp_path / "vdriver" / "nvidia" / "lib64"
    volume.mkdir(parents=True)
    probe = VcudaProbe(tmp_path / "vdriver")
    assert not probe()
    (volume / "libcuda.so.1").write_bytes(b"\x7fELF ... /etc/vcuda/vcuda.config ...")
    limits = build_limits(tmp_path, vcuda=probe)

    async def act(scene):
        async with scene.running():
            theirs, ours = scene.place(FORK, (1,)), scene.place(OWN, (2,))
            for pod in (theirs, ours):
                await scene.kubelet.admit(pod)
            first, second = await scene.start(theirs), await scene.start(ours)
            return first, second, scene.limits.folders.pods() == (ours.uid,)

    first, second, alone = limited(tmp_path, act, limits=limits)

    assert "/etc/vcuda" in first["mounts"]
    assert not first["mounts"].keys() & INSIDE
    assert second["mounts"].keys() >= INSIDE
    assert alone


def test_versions_of_the_library_are_immutable_and_removed_when_nobody_has_them(tmp_path):
    source, folder = tmp_path / NAME, tmp_path / "limiter"
    source.write_bytes(b"\x7fELF one")
    library = LimiterLibrary(source, folder)
    first = library.install("aarch64")
    source.write_bytes(b"\x7fELF two")
    second = library.install("aarch64")

    assert first.path.read_bytes() == b"\x7fELF one"
    assert second.path.read_bytes() == b"\x7fELF two"
    assert first.preload.read_text() == "/usr/local/slicewise/lib/libslicewise-limit.so\n"
    library.sweep(frozenset({first.version}))
    assert first.path.exists()
    library.sweep(frozenset())
    assert (first.path.exists(), second.path.exists()) == (False, True)


@pytest.mark.parametrize(
    ("content", "machine", "problem"),
    [
        (None, "x86_64", "No such file"),
        (b"text", "x86_64", "is no library"),
        (b"\x7fELF", "riscv64", "for riscv64"),
    ],
)
def test_node_without_a_library_says_why(tmp_path, content, machine, problem):
    source = tmp_path / NAME
    if content is not None:
        source.write_bytes(content)
    library = LimiterLibrary(source, tmp_path / "limiter")

    assert library.install(machine) is None
    assert problem in library.problem


def test_installed_library_that_was_damaged_is_written_again(tmp_path):
    source = tmp_path / NAME
    source.write_bytes(b"\x7fELF")
    library = LimiterLibrary(source, tmp_path / "limiter")
    installed = library.install("x86_64")
    installed.path.write_bytes(b"cut")

    assert replace(library.install("x86_64")).path.read_bytes() == b"\x7fELF"
