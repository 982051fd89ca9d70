"""A node's GPUs: our own annotation, and what can be told from plain amounts and labels.

Systems that publish only sums say nothing of single GPUs; theirs are taken as equal, with
invented UUIDs, until Slicewise's own agent publishes the truth.
"""

from dataclasses import replace
from typing import Final

from slicewise.dialects.shared import texts
from slicewise.dialects.shared.isolation import read_offered, write_offered
from slicewise.dialects.shared.limits import check_count
from slicewise.model import FULL, DialectError, Gpu, Links, MiB, Node, NodeNotice, read_count

GPUS: Final = "slicewise.io/gpus"
AGENT: Final = "slicewise.io/agent"
COUNTED: Final = "amount"
CORDONED: Final = "slicewise.io/cordoned-gpus"

# The first of these labels that names a single model is taken for all GPUs of the node.
_MODEL_LABELS: Final = (
    "nvidia.com/gpu.product",
    "aliyun.accelerator/nvidia_name",
    "gaia.nvidia.com/gpu-model",
    "gaia.tencent.com/gpu-model",
)
_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
_INVENTED: Final = "unknown-"
# A GPU must have a size; one of unknown size can then hold no memory request.
_UNKNOWN_MEMORY: Final = MiB(1)

_FIELD: Final = texts.annotation(GPUS)
_FORM: Final = (
    """like '{"gpus":[{"index":0,"minor":0,"uuid":"GPU-...","model":"...","memory":40960}]}'"""
)


def write_gpus(node: Node) -> str:
    """The annotation's value: every GPU of the node, and how near they are to each other."""
    document: dict[str, object] = {"gpus": [_write_gpu(gpu) for gpu in node.gpus]}
    if node.links is not None:
        document["links"] = {"nvlinks": node.links.nvlinks, "pcie": node.links.pcie}
    return texts.write_json(document)


def _write_gpu(gpu: Gpu) -> dict[str, object]:
    told: dict[str, object] = {
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "memory": gpu.memory,
        "numa": gpu.numa,
        "health": gpu.healthy,
        "mig": gpu.mig,
    }
    told |= {key: True for key in ("claims", "shared") if getattr(gpu, key)}
    offered = write_offered(gpu.isolation)
    return told if offered is None else {**told, "isolation": offered}


def read_gpus(name: str, text: str) -> Node:
    """The node with the GPUs that the annotation's value lists."""
    document = texts.read_json(_FIELD, text, _FORM)
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        raise texts.refuse(_FIELD, text, _FORM)
    gpus = tuple(_read_gpu(at, entry) for at, entry in enumerate(document["gpus"]))
    return Node(name, gpus, _read_links(document.get("links")))


def read_counted(notice: NodeNotice) -> frozenset[str]:
    """The resources that the node's agent says it only counts; none when it says nothing."""
    text = notice.annotations.get(AGENT)
    if text is None:
        return frozenset()
    try:
        document = texts.read_json(texts.annotation(AGENT), text, "what the agent writes")
    except DialectError:
        # It is the agent's word on itself: without it, nothing is known against the node.
        return frozenset()
    ways = document.get("resources") if isinstance(document, dict) else None
    if not isinstance(ways, dict):
        return frozenset()
    return frozenset(name for name, way in ways.items() if way == COUNTED)


def cordon_gpus(node: Node, notice: NodeNotice) -> Node:
    """The node with the GPUs marked that a person has closed to new pods, by UUID or index."""
    entries = frozenset(texts.read_words(notice.annotations.get(CORDONED, "")))
    closed = [gpu.uuid in entries or str(gpu.index) in entries for gpu in node.gpus]
    # A GPU that has left stays on the list until somebody clears it, and closes nothing.
    if not any(closed):
        return node
    gpus = (replace(gpu, cordoned=each) for gpu, each in zip(node.gpus, closed, strict=True))
    return replace(node, gpus=tuple(gpus))


def equal_gpus(notice: NodeNotice, count: int, memory: int) -> tuple[Gpu, ...]:
    """So many GPUs of one size, numbered from 0; size 0 stands for unknown."""
    size = MiB(memory) if memory > 0 else _labelled_memory(notice)
    model = read_model(notice)
    return tuple(
        Gpu(index, invent_uuid(notice.name, index), model, size, index) for index in range(count)
    )


def read_capacity(notice: NodeNotice, resource: str) -> int:
    """How many of this resource the node has, whether or not all are healthy."""
    value = notice.capacity.get(resource)
    if value is None:
        value = notice.allocatable.get(resource)
    return 0 if value is None else read_count(resource, value)


def read_gpu_count(notice: NodeNotice, resource: str, per_gpu: int = 1) -> int:
    """How many GPUs the node has, counting so many of the resource as one GPU."""
    amount = read_capacity(notice, resource)
    return check_count(f"node {notice.name}: {resource}={amount}", amount // per_gpu)


def read_capacities(notice: NodeNotice, core: str, memory: str | None, unit: MiB) -> Node | None:
    """Equal GPUs, 100 cores each; None when the node has less than one GPU's cores."""
    count = read_gpu_count(notice, core, FULL)
    if count == 0:
        return None
    units = 0 if memory is None else read_capacity(notice, memory)
    return Node(notice.name, equal_gpus(notice, count, units * unit // count))


def read_model(notice: NodeNotice) -> str:
    """The one model that the node's labels name; empty when they name none or several."""
    models = (notice.labels.get(key, "") for key in _MODEL_LABELS)
    return next((model for model in models if model and "," not in model), "")


def invent_uuid(name: str, index: int) -> str:
    """A stand-in for the UUID of a GPU whose system publishes none."""
    return f"{_INVENTED}{name}-{index}"


def is_invented(uuid: str) -> bool:
    """Whether this UUID only stands for an index."""
    return uuid.startswith(_INVENTED)


def _labelled_memory(notice: NodeNotice) -> MiB:
    text = notice.labels.get(_MEMORY_LABEL)
    if text is None:
        return _UNKNOWN_MEMORY
    return MiB(read_count(f"node {notice.name}: label {_MEMORY_LABEL}", text)) or _UNKNOWN_MEMORY


def _read_gpu(at: int, entry: object) -> Gpu:
    field = f"{_FIELD}: gpus[{at}]"
    if not isinstance(entry, dict):
        raise texts.refuse(field, entry, _FORM)
    facts = {"numa": None, "health": True, "mig": False, "claims": False, "shared": False, **entry}
    for key in ("index", "minor", "memory"):
        if not texts.is_count(facts.get(key)):
            raise texts.refuse(f"{field}.{key}", facts.get(key), "a whole number")
    for key in ("uuid", "model"):
        if not isinstance(facts.get(key), str):
            raise texts.refuse(f"{field}.{key}", facts.get(key), "a text")
    for key in ("health", "mig", "claims", "shared"):
        if not isinstance(facts[key], bool):
            raise texts.refuse(f"{field}.{key}", facts[key], "true or false")
    if facts["numa"] is not None and not texts.is_count(facts["numa"]):
        raise texts.refuse(f"{field}.numa", facts["numa"], "a whole number or null")
    return Gpu(
        index=facts["index"],
        uuid=facts["uuid"],
        model=facts["model"],
        memory=MiB(facts["memory"]),
        minor=facts["minor"],
        numa=facts["numa"],
        healthy=facts["health"],
        mig=facts["mig"],
        isolation=read_offered(f"{field}.isolation", facts.get("isolation")),
        claims=facts["claims"],
        shared=facts["shared"],
    )


def _read_links(entry: object) -> Links | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise texts.refuse(f"{_FIELD}: links", entry, "nvlinks and pcie")
    return Links(_read_matrix("nvlinks", entry), _read_matrix("pcie", entry))


def _read_matrix(key: str, links: dict[str, object]) -> tuple[tuple[int, ...], ...]:
    rows = links.get(key)
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(texts.is_count(value) for value in row) for row in rows
    ):
        raise DialectError(f"{_FIELD}: links.{key}: expected rows of whole numbers")
    return tuple(tuple(row) for row in rows)
