"""gpu-manager's two JSON files: what its driver volumes hold, and devices for every container.

A file that is missing or cannot be read is reported, and the agent goes on without it: the
originals' image brings its own, so that command lines name files which are nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from slicewise.model import SlicewiseError

_TOOLS: Final = (
    "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-debugdump",
    "nvidia-persistenced", "nvidia-smi",
)  # fmt: skip
_LIBRARIES: Final = (
    "libnvidia-ml", "libcuda", "libnvidia-ptxjitcompiler", "libnvidia-fatbinaryloader",
    "libnvidia-opencl", "libnvidia-compiler", "libnvidia-nvvm", "libvdpau_nvidia",
    "libnvidia-encode", "libnvcuvid", "libnvidia-fbc", "libnvidia-ifr", "libGL", "libGLX",
    "libOpenGL", "libGLESv1_CM", "libGLESv2", "libEGL", "libGLdispatch", "libGLX_nvidia",
    "libEGL_nvidia", "libGLESv2_nvidia", "libGLESv1_CM_nvidia", "libnvidia-eglcore",
    "libnvidia-egl-wayland", "libnvidia-glcore", "libnvidia-tls", "libnvidia-glsi",
    "libnvidia-opticalflow", "libnvidia-gpucomp",
)  # fmt: skip
CLIENT: Final = "gpu-client"
"""The program by which gpu-manager's library registers a container."""
INTERPOSER: Final = "libcuda-control"
"""gpu-manager's library, which answers in place of the driver's two in the volume of shares."""
SHARED: Final = "nvidia"
"""The volume of containers with a share."""
WHOLE: Final = "origin"
"""The volume of containers with whole GPUs."""


class VolumeConfigError(SlicewiseError):
    """A file of gpu-manager's that cannot be read."""


@dataclass(frozen=True, slots=True)
class VolumeParts:
    """What one volume holds: tools by name, and libraries by name without `.so`."""

    name: str
    tools: tuple[str, ...]
    libraries: tuple[str, ...]


DEFAULT_VOLUMES: Final = (
    VolumeParts(SHARED, (*_TOOLS, CLIENT), (*_LIBRARIES, INTERPOSER)),
    VolumeParts(WHOLE, _TOOLS, _LIBRARIES),
)


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """The volumes of a node, and the folder they are in where a file names one."""

    volumes: tuple[VolumeParts, ...] = DEFAULT_VOLUMES
    base: str | None = None


def load_volume_config(path: Path) -> VolumeConfig:
    """What `--volume-config` names."""
    rows = _load(path).get("volume")
    form = """{"volume": [{"name": "nvidia", "components": {"libraries": ["libcuda.so"]}}]}"""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise VolumeConfigError(f"{path}: expected a list of volumes like {form}")
    bases = {row["base"] for row in rows if isinstance(row.get("base"), str)}
    if len(bases) > 1:
        raise VolumeConfigError(f"{path}: base is {', '.join(sorted(bases))}: expected one folder")
    return VolumeConfig(tuple(_read_parts(path, row) for row in rows), next(iter(bases), None))


def load_extra_devices(path: Path) -> tuple[str, ...]:
    """The device nodes that `--extra-config` gives to every container with GPUs."""
    default = _load(path).get("default")
    given = default.get("devices") if isinstance(default, dict) else None
    form = """{"default": {"devices": ["/dev/fuse"]}}"""
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise VolumeConfigError(f"{path}: expected devices like {form}")
    for each in given:
        if not each.startswith("/dev/") or ".." in PurePosixPath(each).parts:
            raise VolumeConfigError(f"{path}: {each!r}: expected a device under /dev")
    return tuple(given)


def _read_parts(path: Path, row: Mapping[str, Any]) -> VolumeParts:
    name, parts = row.get("name"), row.get("components")
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise VolumeConfigError(f"{path}: name={name!r}: expected a name like nvidia or origin")
    found = {}
    for key in ("binaries", "libraries"):
        listed = parts.get(key, []) if isinstance(parts, dict) else None
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise VolumeConfigError(f"{path}: {name}.components.{key}: expected a list of names")
        found[key] = tuple(each.removesuffix(".so") for each in listed if "/" not in each)
    return VolumeParts(name, found["binaries"], found["libraries"])


def _load(path: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise VolumeConfigError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise VolumeConfigError(f"{path}: {error}; expected JSON") from error
    if not isinstance(document, dict):
        raise VolumeConfigError(f"{path}: expected a JSON object")
    return document
