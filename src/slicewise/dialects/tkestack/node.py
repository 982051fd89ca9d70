"""What gpu-manager and its fork publish of a node: a device register, labels, plain capacities.

The register lists GPUs in the driver's order, so a GPU's place in it is its index.
"""

from collections.abc import Sequence
from typing import Final

from slicewise.dialects.shared.dialect import NodePart, PluginLabel
from slicewise.dialects.shared.inventory import invent_uuid, read_capacities
from slicewise.dialects.shared.publication import NodeFacts, Publication, write_label
from slicewise.dialects.shared.texts import annotation, is_count, read_json, refuse, write_json
from slicewise.dialects.tkestack.pods import EDITIONS, FORK
from slicewise.model import FULL, Gpu, MiB, Node, NodeNotice

REGISTER: Final = "tydic.io/nvidia-device-register"
HEARTBEAT: Final = "tydic.io/node-gpu-heartbeat"
FORK_MODEL: Final = "gaia.nvidia.com/gpu-model"
UPSTREAM_MODEL: Final = "gaia.tencent.com/gpu-model"
_FIELD: Final = annotation(REGISTER)
_FORM: Final = """a list like '[{"id":"GPU-...","memory":24576,"type":"NVIDIA A10"}]'"""


def read_node(notice: NodeNotice) -> Node | None:
    """The fork's device register, otherwise equal GPUs by the node's capacities."""
    text = notice.annotations.get(REGISTER)
    registered = None if text is None else read_register(notice, text)
    if registered is not None:
        return registered
    sums = (
        read_capacities(notice, names.core, names.memory, names.memory_unit) for names in EDITIONS
    )
    return next((node for node in sums if node is not None), None)


def read_register(notice: NodeNotice, text: str) -> Node | None:
    """The node as the register annotation lists it; None when it lists no GPU at all."""
    entries = read_json(_FIELD, text, _FORM)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise refuse(_FIELD, text, _FORM)
    sizes = [_read_size(entry) for entry in entries]
    if not any(sizes):
        return None
    return Node(notice.name, _read_entries(notice, entries, sizes))


def write_register(facts: NodeFacts) -> str:
    """The device register of tkestack's fork: a list in which a GPU's place is its index."""
    gpus = {gpu.index: at for at, gpu in enumerate(facts.node.gpus)}
    return write_json(
        [
            # A GPU that was never asked must still take its place.
            {"isMig": False, "health": False}
            if index not in gpus
            else _write_entry(facts, gpus[index])
            for index in range(max(gpus, default=-1) + 1)
        ]
    )


def publish(facts: NodeFacts, editions: frozenset[str]) -> Publication:
    """The fork's register and model label, and gpu-manager's model label."""
    labels: dict[str, str] = {}
    annotations = {}
    if "tkestack" in editions and facts.node.gpus:
        labels |= _label_models(facts.node, FORK_MODEL)
        annotations[REGISTER] = write_register(facts)
    if "tkestack-upstream" in editions:
        labels |= _label_models(facts.node, UPSTREAM_MODEL)
    return Publication(labels, annotations)


NODE: Final = NodePart(
    read_node=read_node,
    publish=publish,
    pool_labels=("gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool"),
    heartbeat=HEARTBEAT,
    plugin_label=PluginLabel(key="nvidia-device-enable", value="enable", resource=FORK.core),
)


def _read_entries(
    notice: NodeNotice, entries: Sequence[dict[str, object]], sizes: Sequence[int]
) -> tuple[Gpu, ...]:
    gpus = []
    for at, (entry, size) in enumerate(zip(entries, sizes, strict=True)):
        uuid, model = entry.get("id", invent_uuid(notice.name, at)), entry.get("type", "")
        if not isinstance(uuid, str) or not isinstance(model, str):
            raise refuse(f"{_FIELD}: entry {at}", entry, "texts for id and type")
        # A GPU its agent could not ask carries no size. It keeps its index, so that pods on it
        # are still understood, and is unhealthy, so that nothing is placed on its borrowed size.
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


def _read_size(entry: dict[str, object]) -> int:
    size = entry.get("memory", 0)
    if not isinstance(size, int) or not is_count(size):
        raise refuse(f"{_FIELD}: memory", size, "MiB as a whole number")
    return size


def _write_entry(facts: NodeFacts, at: int) -> dict[str, object]:
    gpu = facts.node.gpus[at]
    return {
        "id": gpu.uuid,
        "core": FULL,
        "memory": gpu.memory,
        "type": gpu.model,
        "isMig": gpu.mig,
        "capability": facts.capabilities[at] if at < len(facts.capabilities) else 0,
        "health": gpu.healthy and not gpu.cordoned,
    }


def _label_models(node: Node, key: str) -> dict[str, str]:
    """A label with the second word of every model, as gpu-manager shortens them."""
    words = sorted({_second_word(gpu.model) for gpu in node.gpus})
    # The original joined them with commas, which no API server accepts in a label. Its extender
    # looks for a model anywhere in the text, so any other character serves as well.
    model = write_label("_".join(words))
    return {key: model} if model else {}


def _second_word(model: str) -> str:
    words = model.split()
    return words[1] if len(words) > 1 else model.strip()
