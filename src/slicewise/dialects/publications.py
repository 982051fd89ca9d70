"""What an agent publishes of its GPUs, so that every system's scheduler finds what it reads.

A label's value has at most 63 letters, digits, dots, dashes and underscores, whatever a GPU
is called and however many models a node mixes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from slicewise.dialects.shared.inventory import GPUS, write_gpus
from slicewise.dialects.shared.texts import write_json
from slicewise.dialects.tkestack import FORK
from slicewise.model import FULL, Gpu, Node

TROUBLES: Final = "slicewise.io/gpu-troubles"
HEARTBEAT: Final = "tydic.io/node-gpu-heartbeat"
FORK_MODEL: Final = "gaia.nvidia.com/gpu-model"
UPSTREAM_MODEL: Final = "gaia.tencent.com/gpu-model"
_LONGEST: Final = 63
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_ENDS: Final = "._-"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node's GPUs with their health as judged, and what only some systems publish of them."""

    node: Node
    capabilities: tuple[int, ...] = ()
    """Compute capability of each GPU, 86 for 8.6, in the order of the node's GPUs."""
    driver: str = ""
    cuda: str = ""
    troubles: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Why each ill GPU is ill, by UUID."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Labels and annotations for a Node; offers are labels that give way to anybody else's."""

    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    offers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


def publish(facts: NodeFacts, dialects: Iterable[str]) -> Publication:
    """What these dialects publish together, beside our own annotations."""
    parts = [_publish_own(facts)]
    parts += [_PARTS[name](facts) for name in dialects if name in _PARTS]
    return Publication(
        {key: value for part in parts for key, value in part.labels.items()},
        {key: value for part in parts for key, value in part.annotations.items()},
        {key: value for part in parts for key, value in part.offers.items()},
    )


def write_label(text: str) -> str:
    """The text as a label's value, as near as the rules allow; empty when nothing is left."""
    return _ILLEGAL.sub("-", text).strip(_ENDS)[:_LONGEST].strip(_ENDS)


def write_register(facts: NodeFacts) -> str:
    """The device register of tkestack's fork: a list in which a GPU's place is its index."""
    gpus = {gpu.index: at for at, gpu in enumerate(facts.node.gpus)}
    return write_json(
        [
            # A GPU that was never asked must still take its place.
            {"isMig": False, "health": False}
            if index not in gpus
            else _register_entry(facts, gpus[index])
            for index in range(max(gpus, default=-1) + 1)
        ]
    )


def _register_entry(facts: NodeFacts, at: int) -> dict[str, object]:
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


def _publish_own(facts: NodeFacts) -> Publication:
    annotations = {GPUS: write_gpus(facts.node)}
    if facts.troubles:
        annotations[TROUBLES] = write_json(dict(facts.troubles))
    return Publication(annotations=annotations)


def _publish_fork(facts: NodeFacts) -> Publication:
    if not facts.node.gpus or FORK.register is None:
        return Publication()
    return Publication(_label_models(facts, FORK_MODEL), {FORK.register: write_register(facts)})


def _publish_upstream(facts: NodeFacts) -> Publication:
    return Publication(_label_models(facts, UPSTREAM_MODEL))


def _label_models(facts: NodeFacts, key: str) -> dict[str, str]:
    words = sorted({_second_word(gpu.model) for gpu in facts.node.gpus})
    # The original joined them with commas, which no API server accepts in a label. Its extender
    # looks for a model anywhere in the text, so any other mark serves as well.
    model = write_label("_".join(words))
    return {key: model} if model else {}


def _publish_gpushare(facts: NodeFacts) -> Publication:
    gpus = _shared_gpus(facts.node)
    if not gpus:
        return Publication()
    labels = {"aliyun.accelerator/nvidia_count": str(len(gpus))}
    if (model := _one_model(gpus)) is not None:
        labels["aliyun.accelerator/nvidia_name"] = model
    if (memory := _one_memory(gpus)) is not None:
        labels["aliyun.accelerator/nvidia_mem"] = f"{memory}MiB"
    return Publication(labels)


def _publish_nvidia(facts: NodeFacts) -> Publication:
    """NVIDIA's own labels, unless NVIDIA's discovery is there to write them."""
    gpus = facts.node.gpus
    if not gpus:
        return Publication()
    offers = {"nvidia.com/gpu.count": str(len(gpus))}
    if (model := _one_model(gpus)) is not None:
        offers["nvidia.com/gpu.product"] = model
    if (memory := _one_memory(gpus)) is not None:
        offers["nvidia.com/gpu.memory"] = str(memory)
    capabilities = set(facts.capabilities)
    if len(capabilities) == 1 and (capability := capabilities.pop()):
        offers["nvidia.com/gpu.compute.major"] = str(capability // 10)
        offers["nvidia.com/gpu.compute.minor"] = str(capability % 10)
    for key, text in (
        ("nvidia.com/cuda.driver-version.full", facts.driver),
        ("nvidia.com/cuda.runtime-version.full", facts.cuda),
    ):
        if value := write_label(text):
            offers[key] = value
    return Publication(offers=offers)


def _second_word(model: str) -> str:
    words = model.split()
    return words[1] if len(words) > 1 else model.strip()


def _shared_gpus(node: Node) -> list[Gpu]:
    return [gpu for gpu in node.gpus if not gpu.mig]


def _one_model(gpus: Sequence[Gpu]) -> str | None:
    models = {gpu.model for gpu in gpus}
    return (write_label(models.pop()) or None) if len(models) == 1 else None


def _one_memory(gpus: Sequence[Gpu]) -> int | None:
    sizes = {gpu.memory for gpu in gpus}
    return sizes.pop() if len(sizes) == 1 else None


# Elastic's scheduler reads nothing but the amounts that the kubelet reports.
_PARTS: Final[Mapping[str, Callable[[NodeFacts], Publication]]] = {
    "tkestack": _publish_fork,
    "tkestack-upstream": _publish_upstream,
    "gpushare": _publish_gpushare,
    "nvidia": _publish_nvidia,
}
