"""Which GPUs a pod's annotations record for each container, read without any code of the product.

Some systems write a GPU's index and others its minor number; the GPUs here have both, never equal
for all, so that a confusion of the two shows.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The numbers NVIDIA's driver has; no driver answers to them on a machine without GPUs.
GPU_MAJOR, CONTROL_MINOR, UVM_MAJOR = 195, 255, 510
CONTROLS = {
    "nvidiactl": (GPU_MAJOR, CONTROL_MINOR),
    "nvidia-uvm": (UVM_MAJOR, 0),
    "nvidia-uvm-tools": (UVM_MAJOR, 1),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that does not exist, with everything a container may be told of it."""

    index: int
    minor: int
    uuid: str
    model: str
    memory: int

    @property
    def device(self) -> str:
        """The name of its device node."""
        return f"nvidia{self.minor}"


def make_gpus(*kinds: tuple[int, str, int]) -> tuple[Gpu, ...]:
    """So many GPUs of each model and size; minor numbers run against indexes, as some have it."""
    listed = [(model, memory) for count, model, memory in kinds for _ in range(count)]
    last = len(listed) - 1
    return tuple(
        Gpu(at, last - at, f"GPU-5e1ec7ed-0000-4000-8000-{at:012}", model, memory)
        for at, (model, memory) in enumerate(listed)
    )


def make_devices(folder: Path, gpus: Sequence[Gpu]) -> None:
    """The device nodes of these GPUs, in a folder that stands for /dev."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {**CONTROLS, **{gpu.device: (GPU_MAJOR, gpu.minor) for gpu in gpus}}
    for name, number in numbers.items():
        if not (folder / name).exists():
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(*number))


def describe_gpus(gpus: Sequence[Gpu], **fields: Any) -> dict[str, Any]:
    """The description of these GPUs that a simulated driver reads."""
    entries = [
        {
            "index": gpu.index,
            "minor": gpu.minor,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "memory": gpu.memory,
        }
        for gpu in gpus
    ]
    return {"gpus": entries, **fields}


def recorded_gpus(pod: Mapping[str, Any], gpus: Sequence[Gpu]) -> dict[str, tuple[Gpu, ...]]:
    """The GPUs of every GPU container, by its name."""
    annotations = pod["metadata"].get("annotations", {})
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    if record := annotations.get("slicewise.io/allocation"):
        given = json.loads(record)["containers"]
        return {name: tuple(by_uuid[each[1]] for each in given[name]) for name in given}
    return {
        container["name"]: found
        for at, container in enumerate(pod["spec"]["containers"])
        if (found := tuple(_recorded(annotations, at, container, gpus)))
    }


def _recorded(
    annotations: Mapping[str, str], at: int, container: Mapping[str, Any], gpus: Sequence[Gpu]
) -> Iterator[Gpu]:
    by_minor = {gpu.minor: gpu for gpu in gpus}
    for prefix in ("nvidia.com", "tencent.com"):
        if text := annotations.get(f"{prefix}/predicate-gpu-idx-{at}"):
            rewritten = annotations[f"{prefix}/gpu-assigned"] == "true"
            known = by_minor if rewritten else {gpu.index: gpu for gpu in gpus}
            yield from (known[int(number)] for number in text.split(","))
    if "aliyun.com/gpu-mem" in container["resources"]["limits"]:
        text = annotations["ALIYUN_COM_GPU_MEM_IDX"]
        yield from (by_minor[int(number)] for number in text.split(","))
    for prefix in ("elastic-gpu", "elasticgpu.io"):
        if text := annotations.get(f"{prefix}/container-{container['name']}"):
            yield from (by_minor[int(number)] for number in text.split(","))
