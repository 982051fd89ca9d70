"""gpu-manager's display socket, asked as its own client asks it."""

import asyncio
import socket
from dataclasses import replace

import grpc
import pytest

from nodeagent import scenes
from slicewise import __version__
from slicewise.kubelet.codec import decode
from slicewise.kubelet.display_service import (
    SERVICE,
    DisplayedGraph,
    DisplayedUsage,
    DisplayedVersion,
    DisplaySocket,
    DisplaySource,
)
from slicewise.kubelet.errors import KubeletError
from slicewise.nodeagent.compat.display import display, write_usage
from slicewise.nodeagent.compat.manager_pages import (
    UsageDevice,
    UsageDevices,
    UsageDocument,
    UsagePod,
    UsageSpec,
)
from slicewise.nodeagent.usage.node_usage import measure

DEVICE = UsageDevice("0000:01:00.0", "0", 40, 512, (11, 12), 24576)
POD = UsagePod({"c0": UsageDevices([DEVICE])}, "ml", "ann", "east", {"c0": UsageSpec(0.5, 2048)})


class Meter:
    """Usage of one node with a GPU and no pods."""

    def usage(self):
        return measure("n0", [scenes.device(0)], (), scenes.reading({}))

    def links(self):
        return None


def ask(path, *methods, source=None):
    """What the socket answers to these methods."""

    async def act():
        served = DisplaySocket(path, source or display(Meter()))
        await served.open()
        try:
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                return [await channel.unary_unary(f"/{SERVICE}/{name}")(b"") for name in methods]
        finally:
            await served.close()

    return asyncio.run(act())


def test_graph_and_version_are_those_of_the_pages(tmp_path):
    graph, version = ask(tmp_path / "s", "PrintGraph", "Version")

    assert decode(DisplayedGraph, graph).graph.startswith("ROOT:1\n|---GPU0")
    assert decode(DisplayedVersion, version).version == __version__


def test_usage_carries_every_number_of_the_page(tmp_path):
    usage = write_usage(UsageDocument({"uid-1": POD}))
    source = replace(DisplaySource(None, None, None), usage=lambda: usage)

    (answer,) = ask(tmp_path / "s", "PrintUsages", source=source)

    read = decode(DisplayedUsage, answer)
    assert read == usage
    (entry,) = read.usage
    assert (entry.key, entry.value.project, entry.value.user) == ("uid-1", "ml", "ann")
    (gpu,) = entry.value.stat[0].value.dev
    assert (gpu.gpu, gpu.mem, gpu.pids, gpu.device_mem) == (40.0, 512.0, (11, 12), 24576.0)
    assert entry.value.spec[0].value.gpu == 0.5


def test_socket_that_another_program_serves_is_left_to_it(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        with pytest.raises(KubeletError, match="is served by another program"):
            ask(path, "Version")

    assert decode(DisplayedVersion, ask(path, "Version")[0]).version == __version__
    assert not path.exists()
