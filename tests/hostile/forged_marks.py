"""What each system writes on a pod that holds a part of one GPU, written by a tenant's hand."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from e2e.recorded_gpus import Gpu
from hostile.tenancy import GPU_MEMORY, RECORD, Pod, make_pod

CORES, MEMORY = 10, 1024
Marks = dict[str, str]
Forgery = tuple[Mapping[str, int], Marks, Marks]


def write_record(node: str, gpu: Gpu, cores: int = CORES, memory: int = MEMORY) -> str:
    """Slicewise's own record of one container with a part of one GPU."""
    containers = {"main": [[gpu.index, gpu.uuid, cores, memory]]}
    return json.dumps({"containers": containers, "node": node})


def _tkestack(prefix: str, unit: int) -> Callable[[str, Gpu], Forgery]:
    def forge(node: str, gpu: Gpu) -> Forgery:
        now = str(time.time_ns())
        limits = {f"{prefix}/vcuda-core": CORES, f"{prefix}/vcuda-memory": MEMORY // unit}
        marks = {
            f"{prefix}/predicate-gpu-idx-0": str(gpu.index),
            f"{prefix}/predicate-node": node,
            f"{prefix}/gpu-assigned": "false",
            f"{prefix}/predicate-time": now,
        }
        return limits, marks, {"tydic.io/bind-time": now, "tydic.io/bind-phase": "allocating"}

    return forge


def _gpushare(node: str, gpu: Gpu) -> Forgery:
    marks = {
        "ALIYUN_COM_GPU_MEM_IDX": str(gpu.minor),
        "ALIYUN_COM_GPU_MEM_DEV": str(GPU_MEMORY // 1024),
        "ALIYUN_COM_GPU_MEM_POD": "1",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": str(time.time_ns()),
    }
    return {"aliyun.com/gpu-mem": 1}, marks, {}


def _elastic(prefix: str, limits: Mapping[str, int], word: str) -> Callable[[str, Gpu], Forgery]:
    def forge(node: str, gpu: Gpu) -> Forgery:
        assumed = {f"{prefix}/{word}": "true"}
        return limits, {**assumed, f"{prefix}/container-main": str(gpu.minor)}, assumed

    return forge


def _slicewise(node: str, gpu: Gpu) -> Forgery:
    limits = {"slicewise.io/cores": CORES, "slicewise.io/memory": MEMORY}
    return limits, {RECORD: write_record(node, gpu)}, {}


def _nvidia(node: str, gpu: Gpu) -> Forgery:
    return {"nvidia.com/gpu": 1}, {RECORD: write_record(node, gpu, 100, GPU_MEMORY)}, {}


SYSTEMS: Mapping[str, Callable[[str, Gpu], Forgery]] = {
    "tkestack": _tkestack("tencent.com", 256),
    "fork": _tkestack("nvidia.com", 1),
    "gpushare": _gpushare,
    "elastic": _elastic("elasticgpu.io", {"elasticgpu.io/gpu-core": CORES}, "assumed"),
    "percent": _elastic("elastic-gpu", {"elastic-gpu/gpu-percent": CORES}, "assume"),
    "slicewise": _slicewise,
    "nvidia": _nvidia,
}


def forge_pod(name: str, system: str, node: str, gpu: Gpu, **spec: Any) -> Pod:
    """A pod of a system with the marks that would give it this GPU of this node."""
    limits, annotations, labels = SYSTEMS[system](node, gpu)
    more = spec.pop("annotations", {})
    metadata = {"annotations": {**annotations, **more}, "labels": labels}
    return make_pod(name, limits, metadata=metadata, **spec)


def honest_pod(name: str, system: str, **spec: Any) -> Pod:
    """A pod that asks for the same and leaves the rest to the scheduler."""
    limits, _, _ = SYSTEMS[system]("", Gpu(0, 0, "", "", 0))
    return make_pod(name, limits, **spec)
