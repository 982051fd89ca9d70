"""The driver's own limits: on the pod's cgroup before the start, on containers' as they appear."""

import asyncio
import os

import pytest
from structlog.testing import capture_logs

import builders
from fakes.kubelet import StartError
from fakes.nvml import build_library
from nodeagent.limits.test_container_limits import INSIDE, OWN, build_limits, grant_of
from nodeagent.living import live
from slicewise.dialects.shared.isolation import ISOLATION
from slicewise.model import (
    Allocation,
    Container,
    ContainerAllocation,
    Isolation,
    IsolationTier,
    OfferedIsolation,
)
from slicewise.nodeagent.limits import driver_limits
from slicewise.nodeagent.limits.driver_limits import DriverLimits, PodLimits, read_limits
from slicewise.nodeagent.limits.grant_file import GrantFlags
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nvml.driver import DriverError
from slicewise.nvml.library import LibraryDriver
from slicewise_testbed.cuda import OUT_OF_MEMORY, SUCCESS, UUID, CudaMachine, run_client
from slicewise_testbed.nvml_file import FILE_VARIABLE

HOOK, DRIVER = IsolationTier.HOOK, IsolationTier.DRIVER
BOTH = OfferedIsolation((HOOK, DRIVER), (HOOK,))
KEPT = Isolation(DRIVER, HOOK)
UID = "0f3c1a52-7d0e-4f0e-9c55-1f2e3d4c5b6a"
MIB = 1 << 20
GPUS = tuple(builders.gpu(at, memory=2048, uuid=f"GPU-{at}") for at in range(2))


class LimitedMemory:
    """A driver that keeps limits by cgroup, or another number than it was told."""

    def __init__(self, other=None):
        self.other, self.limits = other, {}

    def limit_memory(self, uuid, cgroup, limit):
        if not cgroup.is_dir():
            raise DriverError("operating system call failed")
        self.limits[cgroup.name, uuid] = limit
        return self.other or limit


def make_pod(root, uid=UID, identity=""):
    folder = root / "kubepods" / "burstable" / f"pod{uid}" / identity
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def node_pod(*given):
    containers = tuple(builders.container(each.name) for each in given)
    return NodePod(UID, "ml", "p0", containers, recorded=Allocation("n0", given))


def given(name, *slices, isolation=KEPT):
    return ContainerAllocation(name, slices, isolation)


def limits_of(*given, containers=None):
    each = containers or tuple(builders.container(one.name) for one in given)
    return read_limits(UID, each, Allocation("n0", given), GPUS)


def test_pod_is_limited_to_the_sum_of_its_containers_and_each_to_its_own():
    one, other = given("a", builders.piece(0, 20, 256)), given("b", builders.piece(0, 30, 512))

    assert limits_of(one) == PodLimits(UID, {"GPU-0": 256 * MIB})
    assert limits_of(one, other) == PodLimits(
        UID,
        {"GPU-0": 768 * MIB},
        {"a": {"GPU-0": 256 * MIB}, "b": {"GPU-0": 512 * MIB}},
    )


def test_init_container_that_ends_before_the_others_is_not_added_to_them():
    early = Container("a", role=builders.Role.INIT)
    one, other = given("a", builders.piece(0, 20, 700)), given("b", builders.piece(0, 30, 512))

    found = limits_of(one, other, containers=(early, Container("b")))

    assert found.pod == {"GPU-0": 700 * MIB}


@pytest.mark.parametrize(
    "held",
    [
        given("a", builders.piece(0, 20, 256), isolation=Isolation(HOOK, HOOK)),
        given("a", builders.piece(0, 20, 256), isolation=None),
        given("a", builders.piece(0, 100, 2048)),
    ],
    ids=["hook", "older-record", "whole"],
)
def test_what_the_driver_was_not_promised_to_keep_it_does_not(held):
    assert limits_of(held) is None


def driver_scene(root, act, limiter, **facts):
    cgroups = root / "cgroup"
    cgroups.mkdir()
    limits = build_limits(root, driver=DriverLimits(limiter, cgroups), **facts)
    return live(root, act, offered=BOTH, limits=limits)


def start_named(cgroup=True):
    async def act(scene):
        async with scene.running():
            pod = builders.pod(limits=OWN, name="p1", annotations={ISOLATION: "driver"})
            pod = scene.bind(scene.allocate(pod, (1,)))
            if cgroup:
                make_pod(scene.root / "cgroup", pod.uid)
            await scene.kubelet.admit(pod)
            edits = await scene.start(pod)
            return pod, edits, grant_of(scene, pod)

    return act


def test_pod_is_limited_before_its_container_starts_and_the_library_only_reports(tmp_path):
    limiter = LimitedMemory()
    pod, edits, grant = driver_scene(tmp_path, start_named(), limiter)

    assert limiter.limits == {(f"pod{pod.uid}", "GPU-1"): 256 * MIB}
    assert edits["env"]["SLICEWISE_ISOLATION"] == "driver/hook"
    assert edits["mounts"].keys() >= INSIDE
    assert grant.flags == GrantFlags(2 | 4 | 8 | 16)
    assert grant.devices[0].memory_bytes == 256 * MIB


@pytest.mark.parametrize(
    ("limiter", "cgroup", "why"),
    [
        (LimitedMemory(other=5), True, "268435456 bytes were set .* and 5 bytes are in force"),
        (LimitedMemory(), False, "its pod has no cgroup under"),
    ],
    ids=["other-limit", "no-cgroup"],
)
def test_container_whose_limit_is_not_in_force_is_held_back(tmp_path, limiter, cgroup, why):
    with pytest.raises(StartError, match=why):
        driver_scene(tmp_path, start_named(cgroup), limiter)


def test_container_promised_the_driver_is_held_back_where_it_is_offered_no_more(tmp_path):
    with pytest.raises(StartError, match="no longer offers"):
        live(tmp_path, start_named(), offered=BOTH, limits=build_limits(tmp_path))


def test_driver_alone_needs_no_library_on_the_node(tmp_path):
    limiter = LimitedMemory()
    limits = build_limits(
        tmp_path, b"no library", driver=DriverLimits(limiter, tmp_path / "cgroup")
    )

    async def act(scene):
        async with scene.running():
            pod = builders.pod(limits=OWN, name="p1", annotations={ISOLATION: "memory=driver"})
            pod = scene.bind(scene.allocate(pod, (1,)))
            make_pod(tmp_path / "cgroup", pod.uid)
            await scene.kubelet.admit(pod)
            return await scene.start(pod)

    edits = live(tmp_path, act, offered=OfferedIsolation((DRIVER,), ()), limits=limits)

    assert edits["env"]["SLICEWISE_ISOLATION"] == "driver/none"
    assert not edits["mounts"].keys() & INSIDE
    assert list(limiter.limits.values()) == [256 * MIB]


def test_containers_of_a_running_pod_are_limited_as_their_cgroups_appear(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_limits, "LOOK_SECONDS", 600.0)
    limiter, ids = LimitedMemory(), {"a": "a" * 64, "b": "b" * 64, "sandbox": "c" * 64}
    pods = [node_pod(given("a", builders.piece(0, 20, 256)), given("b", builders.piece(1, 9, 512)))]
    limits = DriverLimits(limiter, tmp_path)

    async def find_owner(identity):
        return next(((UID, name) for name in "ab" if ids[name] == identity), None)

    async def until(count):
        async with asyncio.timeout(20):
            while len(limiter.limits) < count:
                await asyncio.sleep(0.01)

    async def scenario():
        make_pod(tmp_path, identity=ids["a"])
        make_pod(tmp_path, identity=ids["sandbox"])
        running = asyncio.create_task(limits.run(lambda: pods, lambda: GPUS, find_owner))
        # What an earlier agent left is limited first, by the pod and by the container.
        await until(3)
        make_pod(tmp_path, identity=ids["b"])
        await until(4)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())

    assert limiter.limits == {
        (f"pod{UID}", "GPU-0"): 256 * MIB,
        (f"pod{UID}", "GPU-1"): 512 * MIB,
        (ids["a"], "GPU-0"): 256 * MIB,
        (ids["b"], "GPU-1"): 512 * MIB,
    }


def test_limit_of_a_running_pod_that_is_not_in_force_is_logged_once(tmp_path):
    limits = DriverLimits(LimitedMemory(other=5), tmp_path)
    make_pod(tmp_path)
    pods = [node_pod(given("a", builders.piece(0, 20, 256)))]
    with capture_logs() as lines:
        for _ in range(2):
            asyncio.run(limits.look(pods, GPUS, None))

    assert [line["event"] for line in lines] == ["driver limit not in force"]


@pytest.mark.skipif(os.geteuid() != 0, reason="NVML sets limits for root alone")
def test_program_without_the_library_meets_the_limit_of_its_pods_cgroup(tmp_path, monkeypatch):
    cgroups, limited = tmp_path / "cgroup", tmp_path / "limits"
    pod = make_pod(cgroups)
    inside = f"/{pod.relative_to(cgroups)}/{'a' * 64}"
    gpu = f"gpu 0 0 {UUID} 00000000:01:00.0\nname A\nmemory 16384 0\nstate 0 0 0\n"
    (tmp_path / "nvml").write_text(f"driver 615.1\ncuda 13040\nmemory_limits {limited}\n{gpu}end\n")
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "nvml"))
    driver = LibraryDriver(build_library())
    known = (builders.gpu(0, memory=16384, uuid=UUID),)
    pods = [node_pod(given("a", builders.piece(0, 20, 100)))]
    machine = CudaMachine(tmp_path, [f"limits {limited} {cgroups}", f"gpu {UUID} 16384"])
    environment = {**machine.environment(), "SLICEWISE_CUDA_CGROUP": inside}
    asyncio.run(DriverLimits(driver, cgroups).look(pods, known, None))
    driver.close()

    # Two processes of one cgroup, and one of another, none of them under our library.
    elsewhere = {**environment, "SLICEWISE_CUDA_CGROUP": "/other"}
    with (
        run_client(environment) as one,
        run_client(environment) as other,
        run_client(elsewhere) as stranger,
    ):
        assert one.start().result("alloc", 60 * MIB) == SUCCESS
        assert other.start().result("alloc", 60 * MIB) == OUT_OF_MEMORY
        assert other.result("alloc", 40 * MIB) == SUCCESS
        assert stranger.start().result("alloc", 1000 * MIB) == SUCCESS
