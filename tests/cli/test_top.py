import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner

import builders
from cli.gpushare_cluster import add_node
from extender.living import Cluster
from nodeagent import scenes
from reports.values import gpu, node
from slicewise.cli.main import main
from slicewise.cli.top import read_reports
from slicewise.cluster import Ledger, NodeSeen, PodSeen
from slicewise.dialects import ALLOCATION, DEFAULT
from slicewise.kube.errors import LostError, RefusedError
from slicewise.nodeagent.usage.node_usage import measure
from slicewise.nodeagent.usage.reporting import write_report
from slicewise.reports import (
    ContainerReport,
    DeviceReport,
    MeasuredUse,
    NodeReport,
    PodReport,
    ProcessReport,
)
from slicewise.reports.listing import (
    LIST_PATH,
    AgentStatus,
    ItemMetadata,
    NodeReportItem,
    NodeReportList,
)
from slicewise.state.usage.node_reports import (
    AgentReportReader,
    ReportedNode,
    ReportListReader,
    index_report,
)
from slicewise.state.usage.usage_text import write_head, write_plain
from slicewise.state.usage.usage_view import NodeUsageView, view_node

HALF = {"slicewise.io/cores": "50", "slicewise.io/memory": "1024"}


@pytest.fixture(scope="module")
def living():
    with Cluster(nodes=2, gpus=3) as cluster:
        cluster.wait_ready()
        cluster.schedule(cluster.add("one", HALF))
        yield cluster


def run(living, tmp_path, *words):
    path = living.playground.write_kubeconfig(tmp_path / "kubeconfig")
    return CliRunner().invoke(main, ["top", *words, "--kubeconfig", str(path)])


def test_pipe_gets_the_table_once_and_use_is_unknown_without_agents(living, tmp_path):
    result = run(living, tmp_path)

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].endswith("use unknown: no agent answers")
    assert [line.split() for line in lines[2:6]] == [
        ["n0", "50/300%", "-", "1024/122880", "-", "3", "x", "NVIDIA", "A100-SXM4-40GB"],
        ["gpu", "0", "50%", "-", "1024/40960", "-", "-"],
        ["default/one", "c0", "50%", "-", "1024", "-", "none"],
        ["gpu", "1,", "2", "0%", "-", "0", "-", "free"],
    ]
    assert "\x1b" not in result.stdout


def test_nodes_can_be_named(living, tmp_path):
    assert "n0 " not in run(living, tmp_path, "n1").stdout
    unknown = run(living, tmp_path, "n9")
    assert (unknown.exit_code, unknown.stderr) == (1, 'Error: node "n9" not found\n')


def test_json_has_every_gpu_and_container(living, tmp_path):
    node = json.loads(run(living, tmp_path, "-o", "json", "n0").stdout)["nodes"][0]

    assert [gpu["promised"]["cores"] for gpu in node["gpus"]] == [50, 0, 0]
    assert node["gpus"][0]["containers"] == [
        {
            "pod": "default/one",
            "container": "c0",
            "promised": {"cores": 50, "memoryMib": 1024},
            "used": None,
            "isolation": "none",
        }
    ]


def report(**more):
    """What an agent reports of a node with one busy GPU."""
    use = MeasuredUse(memory_mib=3000, cores=70)
    held = DeviceReport(gpu="GPU-n0-0", use=MeasuredUse(memory_mib=2500, cores=40))
    container = ContainerReport(name="c0", devices=(held,))
    pod = PodReport(namespace="default", name="p0", uid="u0", containers=(container,))
    facts = {
        "gpus": (gpu("GPU-n0-0", use=use),),
        "processes": (ProcessReport(gpu="GPU-n0-0", pid=9, memory_mib=500, origin="host"),),
        **more,
    }
    return node("n0", pods=[pod], **facts)


def view(told, *, silent=False):
    """A node of two GPUs with one pod on the first, and what its agent reports."""
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0", 2)))
    record = '{"containers":{"c0":[[0,"GPU-n0-0",50,2048]]},"node":"n0"}'
    limits = {"slicewise.io/cores": 50, "slicewise.io/memory": 2048}
    pod = builders.pod(limits=limits, node="n0", annotations={ALLOCATION: record})
    ledger.apply(PodSeen(pod))
    return view_node(ledger.snapshot().get("n0"), ledger, ReportedNode(told, silent))


def test_use_of_gpus_and_containers_stands_beside_what_was_allocated():
    shown = view(report())

    text = write_plain([shown])

    assert shown.gpus[0].used == MeasuredUse(memory_mib=3000, cores=70)
    assert re.search(r"default/p0 c0 +50% +40% +2048 +2500 +none +over its memory", text)
    assert "1 process of no pod here" in text
    assert "used 35% and 3%" in write_head([shown])


def test_gpu_that_does_not_answer_is_unknown():
    shown = view(report(gpus=(gpu("GPU-n0-0", why="fell off the bus"),)))

    assert shown.gpus[0].used is None
    assert not shown.answers


def test_figures_of_a_silent_agent_are_unknown():
    shown = view(report(), silent=True)

    assert not shown.answers
    assert "use unknown" in write_head([shown])
    assert "; agent silent" in write_plain([shown])


def test_one_node_without_a_gpu_is_one_node():
    assert write_head([NodeUsageView("n0", ())]) == "1 node, no GPU"


def test_agents_own_report_is_understood():
    owner = scenes.node_pod("p0", uid="u0")
    loads = {"GPU-0": scenes.load(scenes.process(7, memory=300, cores=20), scenes.process(8))}
    reading = scenes.reading(loads, {7: [scenes.inside(owner)], 8: []})
    told = write_report(measure("n0", [scenes.device(0)], [owner], reading), "")
    sent = msgspec.json.decode(msgspec.json.encode(told), type=NodeReport)

    use = index_report(ReportedNode(sent))

    assert use.gpus == {0: MeasuredUse(memory_mib=1324, cores=30)}
    assert use.containers == {("u0", "c0", 0): MeasuredUse(memory_mib=300, cores=20)}
    assert use.loose == {0: [1024]}


class Agents:
    """A client whose node proxy has one agent, one that is lost and one that talks nonsense."""

    def __init__(self, listed=None):
        self.listed = listed
        self.asked = []

    async def read_once(self, call, seconds=None):
        self.asked.append(call.path)
        if call.path == LIST_PATH:
            if self.listed is None:
                raise RefusedError(404, "NotFound", "no such group")
            return msgspec.json.encode(self.listed)
        if "n0:5678" in call.path:
            return msgspec.json.encode(report())
        if "n1" in call.path:
            raise LostError("nobody")
        return b"<html>"


def read_all(client):
    readers = ReportListReader(client), AgentReportReader(client)
    return asyncio.run(read_reports(*readers, ["n0", "n1", "n2"]))


def test_agents_that_do_not_answer_are_left_out():
    assert set(read_all(Agents())) == {"n0"}


def test_no_agent_is_asked_where_the_metrics_api_answers():
    item = NodeReportItem(
        metadata=ItemMetadata(name="n0"), status=AgentStatus(agent="heard"), report=report()
    )
    client = Agents(NodeReportList(items=(item,)))

    assert read_all(client) == {"n0": ReportedNode(report())}
    assert client.asked == [LIST_PATH]


def test_pod_without_record_is_told_without_gpus(tmp_path):
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0", 1)))
    limits = {"nvidia.com/vcuda-core": 20, "nvidia.com/vcuda-memory": 512}
    ledger.apply(PodSeen(builders.pod(limits=limits, node="n0")))

    node = view_node(ledger.snapshot().get("n0"), ledger, None)

    assert node.unplaced == ("default/p0",)
    assert "which GPUs it has is not recorded" in write_plain([node])


def test_gpus_that_the_ledger_gave_to_a_silent_system_are_shown():
    ledger = Ledger(DEFAULT)
    ledger.apply(NodeSeen(builders.node("n0", 2)))
    ledger.apply(PodSeen(builders.pod(limits={"nvidia.com/gpu": 1}, node="n0")))

    node = view_node(ledger.snapshot().get("n0"), ledger, None)

    assert [[part.pod for part in gpu.parts] for gpu in node.gpus] == [["default/p0"], []]


def test_terminal_is_redrawn_until_interrupted(living, tmp_path):
    path = living.playground.write_kubeconfig(tmp_path / "kubeconfig")
    terminal, far = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from slicewise.cli.main import kubectl_plugin; kubectl_plugin()",
    ]
    words = ["top", "--interval", "0.2", "--kubeconfig", str(path)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
    process = subprocess.Popen(
        [*command, *words], stdin=far, stdout=far, stderr=far, env=environment
    )
    os.close(far)
    try:
        seen = _read_until(terminal, b"default/one")
        add_node(living.playground, "late", memory=15, count=1)
        seen += _read_until(terminal, b"late")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert b"\x1b[?1049h" in seen


def _read_until(terminal, words):
    end, seen = time.monotonic() + 60, b""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{words!r} was not drawn: {seen[-400:]!r}"
        seen += os.read(terminal, 65536)
    return seen
