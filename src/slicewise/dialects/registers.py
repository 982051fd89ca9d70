"""What the agents of tkestack and elastic-gpu publish: a device register, or plain capacities.

The register lists GPUs in the driver's order, so a GPU's place in it is its index.
"""

from collections.abc import Sequence
from typing import Final

from slicewise.dialects.shared.inventory import (
    equal_gpus,
    invent_uuid,
    read_capacity,
    read_gpu_count,
)
from slicewise.dialects.shared.texts import annotation, is_count, read_json, refuse
from slicewise.model import FULL, Gpu, MiB, Node, NodeNotice

_FORM: Final = """a list like '[{"id":"GPU-...","memory":24576,"type":"NVIDIA A10"}]'"""


def read_register(notice: NodeNotice, key: str, text: str) -> Node | None:
    """The node as the register annotation lists it; None when it lists no GPU at all."""
    entries = read_json(annotation(key), text, _FORM)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise refuse(annotation(key), text, _FORM)
    sizes = [_read_size(key, entry) for entry in entries]
    if not any(sizes):
        return None
    return Node(notice.name, _read_gpus(notice, key, entries, sizes))


def read_capacities(notice: NodeNotice, core: str, memory: str | None, unit: MiB) -> Node | None:
    """Equal GPUs, 100 cores each; None when the node has less than one GPU's cores."""
    count = read_gpu_count(notice, core, FULL)
    if count == 0:
        return None
    units = 0 if memory is None else read_capacity(notice, memory)
    return Node(notice.name, equal_gpus(notice, count, units * unit // count))


def _read_gpus(
    notice: NodeNotice, key: str, entries: Sequence[dict[str, object]], sizes: Sequence[int]
) -> tuple[Gpu, ...]:
    gpus = []
    for at, (entry, size) in enumerate(zip(entries, sizes, strict=True)):
        uuid, model = entry.get("id", invent_uuid(notice.name, at)), entry.get("type", "")
        if not isinstance(uuid, str) or not isinstance(model, str):
            raise refuse(f"{annotation(key)}: entry {at}", entry, "texts for id and type")
        # A GPU its agent could not ask carries no size. It keeps its index, so that pods on it
        # are still understood, and is unhealthy, so that its borrowed size promises nothing.
        gpus.append(
            Gpu(
                index=at,
                uuid=uuid,
                model=model,
                memory=MiB(size or max(sizes)),
                minor=at,
                healthy=entry.get("health") is not False and size > 0,
                mig=entry.get("isMig") is True,
            )
        )
    return tuple(gpus)


def _read_size(key: str, entry: dict[str, object]) -> int:
    size = entry.get("memory", 0)
    if not isinstance(size, int) or not is_count(size):
        raise refuse(f"{annotation(key)}: memory", size, "MiB as a whole number")
    return size
