"""Which tiers GPUs offer, and why not."""

import asyncio
from dataclasses import replace

import pytest

import builders
from slicewise.model import IsolationTier
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch
from slicewise.nodeagent.limits import tiers
from slicewise.nodeagent.limits.limiter_library import NAME, LimiterLibrary
from slicewise.nodeagent.limits.tiers import TierDetector, TierSettings, ask_mps
from slicewise.nvml.driver import DriverError, GpuDevice, Hardware

HOOK, MPS, DRIVER = IsolationTier.HOOK, IsolationTier.MPS, IsolationTier.DRIVER
DEVICE = GpuDevice(builders.gpu(0, memory=1024), "0000:00:00.0", capability=86)


def library(root, content=b"\x7fELF"):
    (root / NAME).write_bytes(content)
    made = LimiterLibrary(root / NAME, root / "limiter")
    made.install("x86_64")
    return made


class MemoryDriver:
    """A driver that limits memory, or answers something else."""

    def __init__(self, answer=1024 << 20, error=None):
        self.answer, self.error, self.asked = answer, error, []

    def limit_memory(self, uuid, cgroup, limit):
        if self.error is not None:
            raise DriverError(self.error)
        self.asked.append((uuid, cgroup.exists(), limit))
        return self.answer if limit is not None else None


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    folder = tmp_path / "cgroup"
    folder.mkdir()
    monkeypatch.setattr(tiers, "own_cgroup", lambda: "")
    (folder / "cgroup.controllers").write_text("cpu memory\n")
    return folder


def test_hook_is_offered_where_the_library_is(tmp_path):
    offered = TierDetector(library(tmp_path)).offered(DEVICE)

    assert (offered.memory, offered.compute, offered.why) == ((HOOK,), (HOOK,), "")


def test_nothing_is_offered_without_the_library_and_the_reason_is(tmp_path):
    offered = TierDetector(library(tmp_path, b"text")).offered(DEVICE)

    assert (offered.memory, offered.compute) == ((), ())
    assert "is no library" in offered.why


def test_mig_offers_nothing(tmp_path):
    split = replace(DEVICE, gpu=replace(DEVICE.gpu, mig=True))

    assert TierDetector(library(tmp_path)).offered(split).why == "it is in MIG mode"


def test_library_of_vcuda_is_told_as_whose_it_is(tmp_path):
    offered = TierDetector(library(tmp_path, b"text"), vcuda=lambda: True).offered(DEVICE)

    assert (offered.memory, offered.by) == ((HOOK,), "vcuda")


@pytest.mark.parametrize(
    ("tested", "memory", "untested"), [(False, (HOOK,), True), (True, (HOOK, DRIVER), False)]
)
def test_driver_tier_serves_only_where_it_was_tested(tmp_path, cgroups, tested, memory, untested):
    limiter = MemoryDriver()
    settings = TierSettings(driver_tested=tested, cgroups=cgroups)
    offered = TierDetector(library(tmp_path), settings, limiter=limiter).offered(DEVICE)

    assert (offered.memory, offered.driver_untested) == (memory, untested)
    # The trial was on a cgroup of its own, which is gone.
    assert limiter.asked == [("GPU-0", True, 1024 << 20), ("GPU-0", True, None)]
    assert [each.name for each in cgroups.iterdir()] == ["cgroup.controllers"]


@pytest.mark.parametrize(
    "limiter",
    [MemoryDriver(answer=5), MemoryDriver(error="Not Supported")],
    ids=["other-limit", "refused"],
)
def test_driver_whose_trial_fails_offers_no_driver_tier(tmp_path, cgroups, limiter):
    settings = TierSettings(driver_tested=True, cgroups=cgroups)
    offered = TierDetector(library(tmp_path), settings, limiter=limiter).offered(DEVICE)

    assert (offered.memory, offered.driver_untested) == ((HOOK,), False)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("0::/kubepods.slice/agent.scope\n", "kubepods.slice/agent.scope"),
        ("0::/\n", ""),
        ("0::/../../other\n", ""),
        ("4:memory:/x\n", ""),
    ],
)
def test_trial_is_below_the_agents_own_cgroup(tmp_path, text, own):
    (tmp_path / "cgroup").write_text(text)

    assert tiers.own_cgroup(tmp_path / "cgroup") == own


def test_trial_is_repeated_for_another_driver_and_the_next_day(tmp_path, cgroups):
    limiter, now = MemoryDriver(), [0.0]
    settings = TierSettings(cgroups=cgroups)
    detector = TierDetector(library(tmp_path), settings, limiter=limiter, clock=lambda: now[0])
    for driver, at in (("615.1", 0.0), ("615.1", 10.0), ("616.0", 20.0), ("616.0", 90_000.0)):
        now[0] = at
        detector.offered(DEVICE, driver)

    assert len(limiter.asked) == 2 * 3


def test_backend_is_told_by_the_kernels_list_of_regions(tmp_path, cgroups):
    detector = TierDetector(library(tmp_path), TierSettings(cgroups=cgroups))
    before = detector.backend
    (cgroups / "dmem.capacity").write_text("nvidia/0000:01:00.0/vidmem 42949672960\n")

    assert (before, detector.backend) == ("driver-internal", "dmem")


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ('read line; [ "$line$CUDA_MPS_PIPE_DIRECTORY" = get_server_list/pipe ]', ""),
        ("exit 3", "ended with 3"),
    ],
)
def test_mps_is_asked_on_its_pipe(tmp_path, script, answer):
    program = tmp_path / "control"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = ask_mps(tmp_path.__class__("/pipe"), str(program))

    assert found == "" if not answer else answer in found


def test_mps_without_a_daemons_program_or_on_an_old_gpu_is_not_offered(tmp_path):
    settings = TierSettings(mps_pipe=tmp_path)
    detector = TierDetector(library(tmp_path), settings)
    old = replace(DEVICE, capability=61)

    assert "below 7.0" in detector.offered(old).why
    assert detector.offered(DEVICE).memory == (HOOK,)
    assert "cannot run nvidia-cuda-mps-control" in detector.offered(DEVICE).why


def test_watch_publishes_what_is_offered(tmp_path):
    class OneGpu:
        def hardware(self):
            return Hardware((DEVICE,), None, "550.54", "12.4")

    watch = GpuWatch(OneGpu(), "n0")
    watch.tiers = TierDetector(library(tmp_path)).offered
    facts = asyncio.run(asyncio.to_thread(watch.look))

    assert [gpu.isolation.memory for gpu in facts.node.gpus] == [(HOOK,)]
