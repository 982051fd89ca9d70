"""The agent as it is wired: GPUs described by a file, an embedded API, a kubelet of the tests."""

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress

from structlog.testing import capture_logs

from fakes.kubelet import FakeKubelet
from slicewise.dialects import GPUS, read_gpus
from slicewise.dialects.shared.injection import GpuManagerPaths
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.nodeagent.agent import AgentEdges
from slicewise.nodeagent.gpus.gpu_watch import GpuWatch
from slicewise.nodeagent.gpus.health import GpuHealthTracker, RecoveryPolicy
from slicewise.nodeagent.gpus.publisher import keep_published
from slicewise.nodeagent.run import (
    AgentOptions,
    build_publisher,
    open_driver,
    read_setup,
    start_agent,
)
from slicewise.nodeagent.settings import AgentSettings, IdentityMode, Paths
from slicewise_playground.cluster import Playground

_GPUS = """
gpus:
  - {model: NVIDIA A10, memory: 1000, uuid: g0}
  - {model: NVIDIA A10, memory: 1000, uuid: g1}
"""


class Wired:
    """An agent of one node with everything around it."""

    def __init__(self, folder, playground, kubelet):
        self.playground = playground
        self.description = folder / "gpus.yaml"
        self.config = folder / "config.json"
        self.describe(_GPUS)
        self.command = AgentOptions(
            settings=AgentSettings(
                node="n0",
                identity=IdentityMode.CDI,
                paths=Paths(
                    plugins=kubelet.plugins,
                    pod_resources=kubelet.pod_resources,
                    cdi=folder / "cdi",
                    vendor_cdi=(),
                    dev=folder,
                    state=folder / "state",
                ),
                places=GpuManagerPaths(str(folder / "vm"), str(folder / "vdriver")),
                require_gpus=False,
            ),
            simulated=True,
            driver_file=self.description,
            node_config=self.config,
            recover_seconds=0.3,
        )

    def describe(self, text):
        draft = self.description.with_suffix(".draft")
        draft.write_text(text)
        os.replace(draft, self.description)

    @property
    def metadata(self):
        return self.playground.get("nodes", "n0", "")["metadata"]

    @property
    def gpus(self):
        text = self.metadata.get("annotations", {}).get(GPUS)
        return () if text is None else read_gpus("n0", text).gpus

    async def until(self, reached, seconds=30):
        async with asyncio.timeout(seconds):
            while not reached():
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self):
        """All of the agent but its runtime and its pages."""
        settings = self.command.settings
        setup = read_setup(self.command)
        driver = open_driver(self.command)
        holders = PodResourcesClient(settings.paths.pod_resources)
        health = GpuHealthTracker(RecoveryPolicy(self.command.recover_seconds))
        watch = GpuWatch(driver, "n0", health=health, scaling=setup.scaling)
        async with Client(Access(self.playground.url)) as client:
            agent = await start_agent(settings, watch, AgentEdges(client, holders, None, "none"))
            publisher = build_publisher(self.command, client, agent)
            work = asyncio.gather(agent.run(), keep_published(publisher, watch, agent))
            try:
                await self.until(lambda: work.done() or self.gpus)
                yield
            finally:
                work.cancel()
                driver.close()
                with suppress(asyncio.CancelledError):
                    await work
                await holders.close()


def _live(folder, act):
    async def run():
        kubelet = FakeKubelet(folder / "kubelet")
        with Playground() as playground:
            playground.create("nodes", {"metadata": {"name": "n0"}})
            await kubelet.start()
            try:
                return await act(Wired(folder, playground, kubelet))
            finally:
                await kubelet.stop()

    return asyncio.run(run())


def test_gpu_with_a_critical_xid_leaves_the_node_within_five_seconds_and_returns(tmp_path):
    async def act(wired):
        async with wired.running():
            wired.describe(_GPUS + "faults: [{sequence: 1, gpu: 1, xid: 79}]")
            await wired.until(lambda: [gpu.healthy for gpu in wired.gpus] == [True, False], 5)
            told = json.loads(wired.metadata["annotations"]["slicewise.io/gpu-troubles"])
            wired.describe(_GPUS)
            await wired.until(lambda: all(gpu.healthy for gpu in wired.gpus))
            return told, wired.metadata["annotations"]

    told, after = _live(tmp_path, act)

    assert told == {"g1": "XID 79: it has fallen off the bus"}
    assert "slicewise.io/gpu-troubles" not in after


def test_memory_is_scaled_by_the_nodes_own_configuration(tmp_path):
    async def act(wired):
        wired.config.write_text(
            '{"nodeConfig": [{"name": "n0", "deviceMemoryScaling": 0.5} ## half\n]}'
        )
        async with wired.running():
            return wired.gpus, wired.metadata["labels"]

    gpus, labels = _live(tmp_path, act)

    assert [gpu.memory for gpu in gpus] == [500, 500]
    assert labels["nvidia.com/gpu.memory"] == "500"


def test_corrupt_configuration_is_logged_and_the_agent_serves(tmp_path):
    async def act(wired):
        wired.config.write_text('{"nodeConfig": [{"name": "n0", "deviceMemoryScaling": 7}]}')
        async with wired.running():
            return wired.gpus

    with capture_logs() as lines:
        gpus = _live(tmp_path, act)

    assert [gpu.memory for gpu in gpus] == [1000, 1000]
    assert any("deviceMemoryScaling=7: expected" in line.get("problem", "") for line in lines)


def test_driver_that_dies_leaves_what_was_published(tmp_path, caplog):
    async def act(wired):
        async with wired.running():
            before = wired.metadata["annotations"]
            wired.describe(_GPUS + "unavailable: true")
            await wired.until(lambda: "GPUs unknown" in caplog.text)
            during = wired.metadata["annotations"]
            wired.describe(_GPUS.replace("1000", "900"))
            await wired.until(lambda: [gpu.memory for gpu in wired.gpus] == [900, 900])
            return before, during

    before, during = _live(tmp_path, act)

    assert before == during
