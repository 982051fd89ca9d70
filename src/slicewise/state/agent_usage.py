"""What GPUs and containers really use, asked of agents; unknown where nobody answers."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from slicewise.kube.client import Client
from slicewise.kube.errors import KubeError
from slicewise.kube.node_proxy import read_page

AGENT_PORT: Final = 5678
_PATH: Final = "/usage/gpus"
_SECONDS: Final = 3.0
_AT_ONCE: Final = 32


class AgentUse(msgspec.Struct, rename="camel", frozen=True):
    """Percent of compute and MiB in use."""

    cores: int = 0
    memory_mib: int = 0


class _Gpu(msgspec.Struct):
    gpu: int
    load: AgentUse | None = None
    trouble: str | None = None


class _Held(msgspec.Struct):
    gpu: int
    used: AgentUse | None = None


class _Container(msgspec.Struct):
    uid: str
    container: str
    gpus: list[_Held] = []


class _Loose(msgspec.Struct, rename="camel"):
    gpu: int
    memory_mib: int = 0


class _Page(msgspec.Struct):
    gpus: list[_Gpu] = []
    containers: list[_Container] = []
    strays: list[_Loose] = []
    trespasses: list[_Loose] = []


@dataclass(frozen=True, slots=True)
class AgentNodeUse:
    """What one agent says: per GPU, per container on a GPU, and what nobody was promised."""

    gpus: dict[int, AgentUse] = field(default_factory=dict)
    containers: dict[tuple[str, str, int], AgentUse] = field(default_factory=dict)
    loose: dict[int, list[int]] = field(default_factory=dict)
    """MiB of each process on a GPU that belongs to no container there."""
    trouble: dict[int, str] = field(default_factory=dict)


class UsageReader:
    """Asks agents through the API server; a node that does not answer is unknown, no error."""

    def __init__(self, client: Client, port: int = AGENT_PORT) -> None:
        self._client = client
        self._port = port
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, nodes: Iterable[str]) -> dict[str, AgentNodeUse]:
        """What the agents of these nodes say, as far as they answer."""
        names = list(nodes)
        found = await asyncio.gather(*(self._read_node(name) for name in names))
        return {name: use for name, use in zip(names, found, strict=True) if use is not None}

    async def _read_node(self, node: str) -> AgentNodeUse | None:
        async with self._turns:
            try:
                page = await read_page(self._client, node, self._port, _PATH, seconds=_SECONDS)
                return read_usage(page)
            except (KubeError, msgspec.DecodeError):
                return None


def read_usage(content: bytes) -> AgentNodeUse:
    """What an agent's page says."""
    page = msgspec.json.decode(content, type=_Page)
    loose: dict[int, list[int]] = {}
    for each in (*page.strays, *page.trespasses):
        loose.setdefault(each.gpu, []).append(each.memory_mib)
    return AgentNodeUse(
        gpus={each.gpu: each.load for each in page.gpus if each.load is not None},
        containers={
            (each.uid, each.container, held.gpu): held.used
            for each in page.containers
            for held in each.gpus
            if held.used is not None
        },
        loose=loose,
        trouble={each.gpu: each.trouble for each in page.gpus if each.trouble},
    )
