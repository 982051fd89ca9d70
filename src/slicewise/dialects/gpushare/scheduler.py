"""gpushare's routes: its extender's two verbs, and the page that its inspect tool reads."""

from typing import Any, Final

from slicewise.dialects.gpushare.pods import GIB
from slicewise.dialects.shared.dialect import SchedulerPart
from slicewise.dialects.shared.routes import ExtenderConfig, ExtenderRoute, SnapshotRoute, Verb
from slicewise.model import Gpu, NodeState, Snapshot

_PATH: Final = "/gpushare-scheduler"


def inspect(snapshot: Snapshot, name: str | None = None) -> dict[str, Any]:
    """Totals, uses and pods per GPU, in each node's own unit; every node with GPUs, or one."""
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
    unit = state.node.memory_unit or GIB.memory_unit
    pods = [
        {
            "name": holding.title,
            "namespace": holding.namespace,
            "usedGPU": -(-piece.memory // unit),
        }
        for holding in state.holdings
        for piece in holding.charges
        if piece.gpu == gpu.index
    ]
    return {
        # The number that gpushare's own annotation and device plugin know the GPU by.
        "id": gpu.minor,
        "totalGPU": gpu.memory // unit,
        "usedGPU": -(-state.used_memory[at] // unit),
        "pods": sorted(pods, key=lambda pod: (pod["namespace"], pod["name"])),
    }


SCHEDULER: Final = SchedulerPart(
    routes=(
        ExtenderRoute(f"{_PATH}/filter", Verb.FILTER),
        ExtenderRoute(f"{_PATH}/bind", Verb.BIND),
    ),
    configs=(
        ExtenderConfig("gpushare", _PATH, {"filter": "filter", "bind": "bind"}, (GIB.memory,)),
    ),
    # The smallest room that suffices, then the lowest number.
    policy="node=price gpu=best-fit",
    views=(SnapshotRoute(f"{_PATH}/inspect", inspect, by_node=True),),
)
