"""The cluster's GPUs as the original systems show them: gpushare's inspect, elastic's status."""

from typing import Any, Final

import msgspec

from slicewise.dialects import GPUSHARE
from slicewise.model import Gpu, NodeState, Snapshot

_STATUS_NAMES: Final = ("elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory")


def inspect(snapshot: Snapshot, name: str | None = None) -> dict[str, Any]:
    """Totals, uses and pods per GPU, in gpushare's units; every node with GPUs, or one."""
    if name is None:
        states = sorted(
            (state for state in snapshot if state.node.gpus), key=lambda state: state.node.name
        )
        return {"nodes": [_inspect_node(state) for state in states]}
    state = snapshot.get(name)
    if state is None:
        return {"nodes": [], "error": f'node "{name}" not found'}
    return {"nodes": [_inspect_node(state)]}


def status(snapshot: Snapshot) -> dict[str, str]:
    """What is free and what there is per GPU, under both of elastic's resource names."""
    gpus = {
        state.node.name: [
            {
                "CoreAvailable": state.free_cores(at),
                "MemoryAvailable": state.free_memory(at),
                "CoreTotal": 100,
                "MemoryTotal": gpu.memory,
            }
            for at, gpu in enumerate(state.node.gpus)
        ]
        for state in sorted(snapshot, key=lambda state: state.node.name)
        if state.node.gpus
    }
    # The original sends the inner document as a text.
    text = msgspec.json.encode(gpus).decode()
    return dict.fromkeys(_STATUS_NAMES, text)


def _inspect_node(state: NodeState) -> dict[str, Any]:
    gpus = [_inspect_gpu(state, at, gpu) for at, gpu in enumerate(state.node.gpus)]
    return {
        "name": state.node.name,
        "totalGPU": sum(row["totalGPU"] for row in gpus),
        "usedGPU": sum(row["usedGPU"] for row in gpus),
        "devs": sorted(gpus, key=lambda row: row["id"]),
    }


def _inspect_gpu(state: NodeState, at: int, gpu: Gpu) -> dict[str, Any]:
    pods = [
        {
            "name": holding.name,
            "namespace": holding.namespace,
            "usedGPU": _units_up(piece.memory),
        }
        for holding in state.holdings
        for piece in holding.charges
        if piece.gpu == gpu.index
    ]
    return {
        # The number that gpushare's own annotation and device plugin know the GPU by.
        "id": gpu.minor,
        "totalGPU": gpu.memory // GPUSHARE.names.memory_unit,
        "usedGPU": _units_up(state.used_memory[at]),
        "pods": sorted(pods, key=lambda pod: (pod["namespace"], pod["name"])),
    }


def _units_up(memory: int) -> int:
    return -(-memory // GPUSHARE.names.memory_unit)
