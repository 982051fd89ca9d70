"""Which cards a pod's annotations promise each container, read without any code of the product.

Some systems write a card's index and others its minor number; the cards here have both, never equal
for all, so that a confusion of the two shows.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The numbers NVIDIA's driver has; no driver answers to them on a machine without cards.
CARD_MAJOR, CONTROL_MINOR, UVM_MAJOR = 195, 255, 510
CONTROLS = {
    "nvidiactl": (CARD_MAJOR, CONTROL_MINOR),
    "nvidia-uvm": (UVM_MAJOR, 0),
    "nvidia-uvm-tools": (UVM_MAJOR, 1),
}


@dataclass(frozen=True, slots=True)
class Card:
    """A card that does not exist, with everything a container may be told of it."""

    index: int
    minor: int
    uuid: str
    model: str
    memory: int

    @property
    def device(self) -> str:
        """The name of its device node."""
        return f"nvidia{self.minor}"


def make_cards(*kinds: tuple[int, str, int]) -> tuple[Card, ...]:
    """So many cards of each model and size; minor numbers run against indexes, as some have it."""
    listed = [(model, memory) for count, model, memory in kinds for _ in range(count)]
    last = len(listed) - 1
    return tuple(
        Card(at, last - at, f"GPU-5e1ec7ed-0000-4000-8000-{at:012}", model, memory)
        for at, (model, memory) in enumerate(listed)
    )


def make_devices(folder: Path, cards: Sequence[Card]) -> None:
    """The device nodes of these cards, in a folder that stands for /dev."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {**CONTROLS, **{card.device: (CARD_MAJOR, card.minor) for card in cards}}
    for name, number in numbers.items():
        if not (folder / name).exists():
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(*number))


def describe_cards(cards: Sequence[Card], **fields: Any) -> dict[str, Any]:
    """The description of these cards that a simulated driver reads."""
    entries = [
        {
            "index": card.index,
            "minor": card.minor,
            "uuid": card.uuid,
            "model": card.model,
            "memory": card.memory,
        }
        for card in cards
    ]
    return {"gpus": entries, **fields}


def promised_cards(pod: Mapping[str, Any], cards: Sequence[Card]) -> dict[str, tuple[Card, ...]]:
    """The cards of every GPU container, by its name."""
    annotations = pod["metadata"].get("annotations", {})
    by_uuid = {card.uuid: card for card in cards}
    if record := annotations.get("slicewise.io/allocation"):
        given = json.loads(record)["containers"]
        return {name: tuple(by_uuid[each[1]] for each in given[name]) for name in given}
    return {
        container["name"]: found
        for at, container in enumerate(pod["spec"]["containers"])
        if (found := tuple(_promised(annotations, at, container, cards)))
    }


def _promised(
    annotations: Mapping[str, str], at: int, container: Mapping[str, Any], cards: Sequence[Card]
) -> Iterator[Card]:
    by_minor = {card.minor: card for card in cards}
    for prefix in ("nvidia.com", "tencent.com"):
        if text := annotations.get(f"{prefix}/predicate-gpu-idx-{at}"):
            rewritten = annotations[f"{prefix}/gpu-assigned"] == "true"
            known = by_minor if rewritten else {card.index: card for card in cards}
            yield from (known[int(number)] for number in text.split(","))
    if "aliyun.com/gpu-mem" in container["resources"]["limits"]:
        text = annotations["ALIYUN_COM_GPU_MEM_IDX"]
        yield from (by_minor[int(number)] for number in text.split(","))
    for prefix in ("elastic-gpu", "elasticgpu.io"):
        if text := annotations.get(f"{prefix}/container-{container['name']}"):
            yield from (by_minor[int(number)] for number in text.split(","))
