"""The GPUs of a node are followed through faults, cordons and a driver that fails."""

import asyncio
import os
from fractions import Fraction

import pytest

from builders import gpu
from builders import node as build_node
from slicewise.dialects import CORDONED, GPUS, write_gpus
from slicewise.model import NodeNotice
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch, scale_gpu
from slicewise.nodeagent.gpus.health import GpuHealthTracker, RecoveryPolicy
from slicewise.nvml.driver import XID, GpuDevice, GpuFault
from slicewise.nvml.simulated import SimulatedDriver

_TEXT = """
gpus:
  - {model: NVIDIA A10, memory: 23028, uuid: g0, capability: 86}
  - {model: Tesla T4, memory: 15360, uuid: g1, minor: 5, capability: 75}
"""


class Bench:
    """A watch over a described machine, with a clock of its own."""

    def __init__(self, folder, **facts):
        self.path = folder / "gpus.yaml"
        self.describe(_TEXT)
        self.now = 0.0
        self.driver = SimulatedDriver(self.path)
        health = GpuHealthTracker(RecoveryPolicy(60, 600, 10_000))
        self.watch = GpuWatch(self.driver, "n0", health=health, clock=lambda: self.now, **facts)

    def describe(self, text):
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        os.replace(draft, self.path)

    def look(self, *faults):
        return self.watch.look(faults)

    def healthy(self, *faults):
        return [gpu.healthy for gpu in self.look(*faults).node.gpus]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_facts_are_what_the_driver_lists(bench):
    facts = bench.look()

    assert [(gpu.uuid, gpu.minor) for gpu in facts.node.gpus] == [("g0", 0), ("g1", 5)]
    assert facts.capabilities == (86, 75)
    assert facts.node.links is not None
    assert not facts.troubles
    assert [device.gpu.uuid for device in bench.watch.hardware.gpus] == ["g0", "g1"]


def test_gpu_with_a_critical_fault_leaves_and_returns(bench):
    assert bench.healthy(GpuFault("g1", XID, 79)) == [True, False]
    assert bench.watch.facts.troubles == {"g1": "XID 79: it has fallen off the bus"}
    bench.now = 59
    assert bench.healthy() == [True, False]
    bench.now = 60
    assert bench.healthy() == [True, True]


def test_every_change_is_logged_with_its_reason(bench, caplog):
    caplog.set_level("INFO")
    bench.look(GpuFault("g1", XID, 48), GpuFault("g0", XID, 31))
    bench.now = 60
    bench.look()

    assert [record.getMessage() for record in caplog.records] == [
        "GPU unhealthy gpu=1 uuid=g1 reason=XID 48: a double-bit memory error",
        "GPU returned gpu=1 uuid=g1 "
        "reason=no fault for 60 s since: XID 48: a double-bit memory error",
    ]


def test_lost_gpu_is_kept_and_unhealthy(bench):
    bench.look()
    bench.describe(_TEXT.replace("uuid: g1", "uuid: g1, lost: true"))

    assert bench.healthy() == [True, False]
    assert bench.watch.facts.troubles == {"g1": "lost"}


def test_cordon_closes_a_gpu_by_uuid_or_index_and_opens_it_again(bench):
    bench.look()
    for text, closed in (("g1", [False, True]), ("0", [True, False]), ("", [False, False])):
        bench.watch.follow(NodeNotice("n0", annotations={CORDONED: text}))
        assert [gpu.cordoned for gpu in bench.watch.facts.node.gpus] == closed
        assert [gpu.cordoned for gpu in bench.look().node.gpus] == closed
        assert bench.healthy() == [True, True]


def test_memory_is_scaled_down_on_every_gpu(tmp_path):
    facts = Bench(tmp_path, scaling=Fraction("0.9")).look()

    assert [gpu.memory for gpu in facts.node.gpus] == [20725, 13824]


def test_scaled_gpu_keeps_at_least_one_mib():
    assert scale_gpu(GpuDevice(gpu(memory=3), bus=""), Fraction(1, 100)).gpu.memory == 1


def test_restarted_agent_keeps_unhealthy_gpus_out_of_service(bench):
    unhealthy = build_node("n0", gpus=[gpu(0, uuid="g0"), gpu(1, uuid="g1", healthy=False)])
    bench.watch.resume(NodeNotice("n0", annotations={GPUS: write_gpus(unhealthy)}))

    assert bench.healthy() == [True, False]
    bench.now = 60
    assert bench.healthy() == [True, True]


def test_earlier_trouble_counts_at_once_when_it_is_learnt_late(bench):
    bench.look()
    unhealthy = build_node("n0", gpus=[gpu(0, uuid="g0", healthy=False)])
    bench.watch.resume(NodeNotice("n0", annotations={GPUS: write_gpus(unhealthy)}))

    assert [device.gpu.healthy for device in bench.watch.hardware.gpus] == [False, True]
    assert [gpu.healthy for gpu in bench.watch.facts.node.gpus] == [False, True]


def test_unreadable_annotation_of_an_earlier_agent_is_passed_over(bench):
    bench.watch.resume(NodeNotice("n0", annotations={GPUS: "{"}))

    assert bench.healthy() == [True, True]


def test_running_watch_tells_of_a_fault_at_once(bench):
    told = []

    async def follow():
        async def tell(facts):
            told.append([gpu.healthy for gpu in facts.node.gpus])
            if len(told) == 1:
                bench.describe(_TEXT + "faults: [{sequence: 1, gpu: 0, xid: 79}]")
            if not all(told[-1]):
                bench.driver.close()
                raise asyncio.CancelledError

        await bench.watch.run(tell, look_seconds=30)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(follow(), 25))
    assert told == [[True, True], [False, True]]


def test_driver_that_fails_leaves_the_last_facts_and_is_asked_again(bench, caplog):
    async def follow():
        seen = []

        async def tell(facts):
            seen.append(facts)
            if len(seen) == 1:
                bench.describe(_TEXT + "unavailable: true")
            else:
                raise asyncio.CancelledError

        task = asyncio.create_task(bench.watch.run(tell, look_seconds=0.01))
        while not any("GPUs unknown" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.01)
        assert bench.watch.facts == seen[0]
        bench.describe(_TEXT)
        await task

    caplog.set_level("INFO")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(follow(), 25))
    phrases = [record.getMessage().split(" error=")[0] for record in caplog.records]
    assert phrases == ["GPUs unknown", "GPUs known again node=n0"]
