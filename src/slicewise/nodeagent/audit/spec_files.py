"""The CDI folder as an audit sees it: for which container each spec is, and the GPUs it injects."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from slicewise.diagnose.evidence import SpecFile
from slicewise.dialects.shared.injection import VISIBLE
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nvml.driver import GpuDevice

_NODE: Final = re.compile(r".*/nvidia(\d+)")
_VISIBLE: Final = f"{VISIBLE}="
# These words of NVIDIA's runtime name no GPU.
_NO_GPUS: Final = frozenset({"", "none", "void"})


def read_spec_files(specs: CdiSpecs, gpus: Sequence[GpuDevice]) -> Iterator[SpecFile]:
    """Every spec of ours; one that cannot be read says so."""
    minors = {device.gpu.minor: device.gpu.uuid for device in gpus}
    for name, owner in specs.read().items():
        if owner is None:
            yield SpecFile(name, trouble="it cannot be read as a spec of ours")
        else:
            found = frozenset(_find_gpus(specs.edits(name), minors))
            yield SpecFile(name, owner.uid, owner.container, found or None)


def _find_gpus(edits: Mapping[str, Any], minors: Mapping[int, str]) -> Iterator[str]:
    """Every GPU that device nodes or the environment name; one unknown here by that name."""
    for node in edits.get("deviceNodes", ()):
        path = str(node.get("hostPath") or node.get("path"))
        if found := _NODE.fullmatch(path):
            yield minors.get(int(found[1]), path)
    for entry in edits.get("env", ()):
        if str(entry).startswith(_VISIBLE):
            named = str(entry).removeprefix(_VISIBLE).split(",")
            yield from (each for each in named if each not in _NO_GPUS)
