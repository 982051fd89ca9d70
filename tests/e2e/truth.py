"""What pods hold of GPUs by their annotations alone, read without any code of the product.

Every system's records are read here a second time, so that a mistake in reading or counting shows
as a difference between the extender's ledger and this.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Gpus = dict[str, list[tuple[int, int]]]
Piece = tuple[int, int, int]
_ENDED = ("Succeeded", "Failed")


def held_gpus(pods: Iterable[Mapping[str, Any]], sizes: Mapping[str, list[int]]) -> Gpus:
    """Percent and MiB that bound pods hold of every GPU, given the GPUs' sizes in MiB."""
    held = {node: [(0, 0)] * len(gpus) for node, gpus in sizes.items()}
    for found in pods:
        node = found["spec"].get("nodeName")
        if node is None or found.get("status", {}).get("phase") in _ENDED:
            continue
        for gpu, cores, memory in read_pieces(found):
            whole = cores == 100
            before = held[node][gpu]
            more = sizes[node][gpu] if whole else memory
            held[node][gpu] = (before[0] + cores, before[1] + more)
    return held


def read_pieces(found: Mapping[str, Any]) -> Iterator[Piece]:
    """GPU, percent and MiB of everything the pod was given."""
    annotations = found["metadata"].get("annotations", {})
    if "slicewise.io/allocation" in annotations:
        record = json.loads(annotations["slicewise.io/allocation"])
        for pieces in record["containers"].values():
            for index, _, cores, memory in pieces:
                yield index, cores, memory
        return
    if "ALIYUN_COM_GPU_MEM_IDX" in annotations:
        gpus = _numbers(annotations["ALIYUN_COM_GPU_MEM_IDX"])
        share = int(annotations["ALIYUN_COM_GPU_MEM_POD"]) * 1024 // len(gpus)
        yield from ((gpu, 0, share) for gpu in gpus)
        return
    for at, container in enumerate(found["spec"]["containers"]):
        limits = container.get("resources", {}).get("limits", {})
        yield from _read_container(annotations, at, container["name"], limits)


def _read_container(
    annotations: Mapping[str, str], at: int, name: str, limits: Mapping[str, str]
) -> Iterator[Piece]:
    for prefix, unit in (("nvidia.com", 1), ("tencent.com", 256)):
        if f"{prefix}/predicate-gpu-idx-{at}" in annotations:
            memory = _amount(limits.get(f"{prefix}/vcuda-memory", "0")) * unit
            gpus = _numbers(annotations[f"{prefix}/predicate-gpu-idx-{at}"])
            cores = _amount(limits[f"{prefix}/vcuda-core"])
            yield from ((gpu, min(cores, 100), memory) for gpu in gpus)
    for prefix, core in (("elastic-gpu", "gpu-percent"), ("elasticgpu.io", "gpu-core")):
        if f"{prefix}/container-{name}" in annotations:
            memory = _amount(limits.get(f"{prefix}/gpu-memory", "0"))
            gpus = _numbers(annotations[f"{prefix}/container-{name}"])
            cores = _amount(limits.get(f"{prefix}/{core}", "0"))
            yield from ((gpu, min(cores, 100), memory) for gpu in gpus)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _amount(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)
