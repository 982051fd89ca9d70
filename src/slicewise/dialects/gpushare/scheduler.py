"""gpushare's routes: its extender's two verbs, and the page that its inspect tool reads."""

from typing import Any, Final

from slicewise.dialects.gpushare.pods import GIB
from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute, Verb
from slicewise.model import Gpu, NodeState, Snapshot

_PATH: Final = "/gpushare-scheduler"


def inspect(snapshot: Snapshot, name: str | None = None) -> dict[str, Any]:
    """Totals, uses and pods per GPU, in gpushare's units; every node with GPUs, or one."""
    if name is None:
        nodes = [_inspect_node(state) for state in snapshot if state.node.gpus]
        return {"nodes": sorted(nodes, key=lambda node: node["name"])}
    state = snapshot.get(name)
    if state is None:
        return {"nodes": [], "error": f'node "{name}" not found'}
    return {"nodes": [_inspect_node(state)]}


def _inspect_node(state: NodeState) -> dict[str, Any]:
    gpus = [_inspect_gpu(state, at, gpu) for at, gpu in enumerate(state.node.gpus)]
    return {
        "name": state.node.name,
        "totalGPU": sum(each["totalGPU"] for each in gpus),
        "usedGPU": sum(each["usedGPU"] for each in gpus),
        "devs": sorted(gpus, key=lambda each: each["id"]),
    }


def _inspect_gpu(state: NodeState, at: int, gpu: Gpu) -> dict[str, Any]:
    pods = [
        {"name": holding.name, "namespace": holding.namespace, "usedGPU": _units_up(piece.memory)}
        for holding in state.holdings
        for piece in holding.charges
        if piece.gpu == gpu.index
    ]
    return {
        # The number that gpushare's own annotation and device plugin know the GPU by.
        "id": gpu.minor,
        "totalGPU": gpu.memory // GIB.memory_unit,
        "usedGPU": _units_up(state.used_memory[at]),
        "pods": sorted(pods, key=lambda pod: (pod["namespace"], pod["name"])),
    }


def _units_up(memory: int) -> int:
    return -(-memory // GIB.memory_unit)


SCHEDULER: Final = SchedulerPart(
    routes=(
        ExtenderRoute(f"{_PATH}/filter", Verb.FILTER),
        ExtenderRoute(f"{_PATH}/bind", Verb.BIND),
    ),
    configs=(
        ExtenderConfig("gpushare", _PATH, {"filter": "filter", "bind": "bind"}, (GIB.memory,)),
    ),
    views=(SnapshotRoute(f"{_PATH}/inspect", inspect, by_node=True),),
)
