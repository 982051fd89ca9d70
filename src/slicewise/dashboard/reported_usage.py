"""What the page knows beyond promises: use, asked of agents in turns, and which agents are silent.

Everything here is optional: a cluster without agents or without the metrics API shows what is
promised, and is asked again only now and then.
"""

import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

import msgspec

from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import KubeError
from slicewise.model import NodeState
from slicewise.state.agent_usage import AGENT_PORT, UsageReader
from slicewise.state.agent_usage import AgentNodeUse as AgentUse
from slicewise.state.ports import ClusterState

_GPUINFOS: Final = Call("list", "gpuinfos", "/apis/metrics.nvidia.com/v1alpha1/gpuinfos")
_SILENT: Final = "False"
# Through the API server's proxy, so that a large cluster is asked at an even and modest pace.
_AT_ONCE: Final = 200
_AGAIN: Final = 60.0
_LONGEST: Final = 600.0
_ABSENT: Final = 10.0
_SECONDS: Final = 5.0


class _Spec(msgspec.Struct):
    device_node: str = ""


class _Status(msgspec.Struct):
    node_health: str = ""


class _Item(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item] = []


class ReportedUsage:
    """Use as the nodes' agents measure it, and their silence as the metrics API notices it."""

    label = "measured"

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        port: int = AGENT_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._state = state
        self._reader = UsageReader(client, port)
        self._clock = clock
        self._known: dict[str, AgentUse] = {}
        self._due: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._silence_due = 0.0
        self._silent: frozenset[str] = frozenset()

    async def read(self) -> dict[str, MeasuredNode]:
        """Every node that answered, as it last did."""
        if not self._state.ready:
            return {}
        await self._ask_agents()
        await self._ask_silence()
        snapshot = self._state.snapshot()
        found = {}
        for name in self._known.keys() | self._silent:
            state = snapshot.get(name)
            if state is not None:
                found[name] = self._join(state)
        return found

    async def _ask_agents(self) -> None:
        now = self._clock()
        names = {state.node.name for state in self._state.snapshot() if state.node.gpus}
        for held in (self._known, self._due, self._pause):
            for name in held.keys() - names:
                del held[name]
        due = sorted((self._due.get(name, -inf), name) for name in names)
        asked = [name for when, name in due[:_AT_ONCE] if when <= now]
        answers = await self._reader.read(asked)
        for name in asked:
            if name in answers:
                self._known[name] = answers[name]
                self._due[name] = now
                self._pause.pop(name, None)
            else:
                self._known.pop(name, None)
                pause = self._pause[name] = min(_LONGEST, 2 * self._pause.get(name, _AGAIN / 2))
                self._due[name] = now + pause

    async def _ask_silence(self) -> None:
        now = self._clock()
        if now < self._silence_due:
            return
        try:
            body = await self._client.read_once(_GPUINFOS, seconds=_SECONDS)
            items = msgspec.json.decode(body, type=_List).items
        except (KubeError, msgspec.DecodeError):
            self._silent = frozenset()
            self._silence_due = now + _ABSENT
            return
        silent = (each.spec.device_node for each in items if each.status.node_health == _SILENT)
        self._silent = frozenset(silent)
        # The list names every GPU, so that it is asked for less often the longer it is.
        self._silence_due = now + len(items) / 500

    def _join(self, state: NodeState) -> MeasuredNode:
        name = state.node.name
        use = self._known.get(name, AgentUse())
        uuids = {gpu.index: gpu.uuid for gpu in state.node.gpus}
        gpus = tuple(
            MeasuredGpu(uuids[at], each.cores, each.memory_mib)
            for at, each in sorted(use.gpus.items())
            if at in uuids
        )
        return MeasuredNode(gpus, tuple(_read_pods(state, use, uuids)), silent=name in self._silent)


def _read_pods(state: NodeState, use: AgentUse, uuids: dict[int, str]) -> Iterator[MeasuredPod]:
    """What each pod uses of each GPU, its containers together."""
    names = {each.uid: each.pod for each in state.holdings}
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for (uid, _, gpu), each in use.containers.items():
        cores, memory = sums.get((uid, gpu), (0, 0))
        sums[uid, gpu] = (cores + each.cores, memory + each.memory_mib)
    for (uid, gpu), (cores, memory) in sorted(sums.items()):
        if uid in names and gpu in uuids:
            yield MeasuredPod(names[uid], uuids[gpu], cores, memory)
