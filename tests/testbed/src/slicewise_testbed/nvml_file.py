"""A description of GPUs for the C library: one fact a line, a GPU's facts below its line."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pynvml

from slicewise.nvml.description import DescribedGpu, Description, read_description

FILE_VARIABLE: Final = "SLICEWISE_NVML_FILE"


def write_lines(described: Description) -> str:
    """The text that the library reads from the file its variable names."""
    return "\n".join([*_list_lines(described), "end", ""])


def write_library_file(
    source: Path, target: Path, name: str = "", more: Sequence[str] = ()
) -> Description:
    """Turn a description file into the library's, at once and whole, and return what it says.

    `more` are facts of the machine that only the library knows.
    """
    described = read_description(str(source), source.read_bytes(), name)
    draft = target.with_name(f".{target.name}.draft")
    draft.write_text("".join(f"{line}\n" for line in more) + write_lines(described))
    os.replace(draft, target)
    return described


def _list_lines(described: Description) -> Iterator[str]:
    major, _, minor = described.cuda.partition(".")
    yield f"driver {described.driver}"
    yield f"cuda {int(major) * 1000 + int(minor or 0) * 10}"
    if described.unavailable:
        yield f"failure {pynvml.NVML_ERROR_DRIVER_NOT_LOADED}"
    for each in described.gpus:
        yield from _list_gpu(each, described.switches.get(each.device.gpu.uuid, 0))
    indexes = {each.device.gpu.uuid: each.device.gpu.index for each in described.gpus}
    for pair, near in described.direct.items():
        one, other = sorted(indexes[uuid] for uuid in pair)
        yield f"link {one} {other} {near.nvlinks} {near.pcie}"
    for fault in described.faults:
        kind = "ecc 0" if fault.xid is None else f"xid {fault.xid}"
        yield f"fault {fault.sequence} {indexes[fault.uuid]} {kind}"


def _list_gpu(each: DescribedGpu, switch_lanes: int) -> Iterator[str]:
    device, gpu, load = each.device, each.device.gpu, each.load
    yield f"gpu {gpu.index} {gpu.minor} {gpu.uuid} {device.bus}"
    yield f"name {gpu.model}"
    yield f"memory {gpu.memory} {load.memory}"
    yield f"utilization {load.cores}"
    yield f"brand {device.brand}"
    yield f"capability {device.capability // 10} {device.capability % 10}"
    yield f"state {int(gpu.mig)} {int(each.lost)} {int(each.rows_failed)}"
    yield f"recovery {each.recovery}"
    yield f"switch {switch_lanes}"
    if gpu.numa is not None:
        yield f"numa {gpu.numa}"
    if load.temperature is not None:
        yield f"temperature {load.temperature}"
    if load.power_milliwatts is not None:
        yield f"power {load.power_milliwatts}"
    for process in load.processes:
        kind = "graphics" if process.pid in each.graphics else "compute"
        yield f"process {process.pid} {process.memory} {process.cores} {kind}"
