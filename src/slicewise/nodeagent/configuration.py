"""How one node differs from the others: gpu-manager's `nodeConfig`, and what the host shows.

Every path of the host begins at a root that is given, so that a container may look at its host's.
Each field of the file stands alone: one that cannot be read is reported by name and value, and
leaves the others, and every other node's, in force.
"""

import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from slicewise.model import SlicewiseError

# Strings are matched first, so that what looks like a comment inside one is kept.
_COMMENTS: Final = re.compile(r'("(?:\\.|[^"\\\n])*")|(?:#|//)[^\n]*')
_SHOWN: Final = 80
_FORM: Final = """like '{"nodeConfig": [{"name": "n1", "deviceMemoryScaling": 1}]}'"""
DRIVERS: Final = ("cgroupfs", "systemd")
KUBELET_CONFIG: Final = "var/lib/kubelet/config.yaml"
# Docker brings a containerd of its own, so its two sockets are looked for first.
_SOCKETS: Final = (
    "var/run/dockershim.sock",
    "var/run/cri-dockerd.sock",
    "run/cri-dockerd.sock",
    "var/run/containerd/containerd.sock",
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "var/run/crio/crio.sock",
    "run/crio/crio.sock",
)
_TREES: Final = {"kubepods.slice": "systemd", "kubepods": "cgroupfs", "kubelet.slice": "systemd"}
# Of the hierarchies of version 1, the first that is there.
_HIERARCHIES: Final = ("memory", "cpu,cpuacct", "cpu", "pids", "systemd")


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Which version of cgroups the host uses, and where containers' processes are listed."""

    version: int
    root: Path


@dataclass(frozen=True, slots=True)
class DetectedHost:
    """What was found; None where nothing was."""

    runtime: Path | None
    cgroup_driver: str | None
    cgroups: CgroupLayout


def detect_host(root: Path = Path("/"), kubelet_config: Path | None = None) -> DetectedHost:
    """Everything that can be detected."""
    kubelet = _read_kubelet(kubelet_config or root / KUBELET_CONFIG)
    cgroups = detect_cgroups(root)
    return DetectedHost(
        _find_runtime(root, kubelet.get("containerRuntimeEndpoint")),
        _find_driver(cgroups, kubelet.get("cgroupDriver")),
        cgroups,
    )


def detect_cgroups(root: Path = Path("/")) -> CgroupLayout:
    """Version 2 where the one hierarchy has controllers, otherwise version 1."""
    base = root / "sys" / "fs" / "cgroup"
    if (base / "cgroup.controllers").exists():
        return CgroupLayout(2, base)
    found = (base / name for name in _HIERARCHIES if (base / name).is_dir())
    return CgroupLayout(1, next(found, base / _HIERARCHIES[0]))


def _read_kubelet(path: Path) -> dict[str, object]:
    # Read as what it is: a search for the word would find the path of a systemd file as well.
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _find_runtime(root: Path, named: object) -> Path | None:
    if isinstance(named, str) and named:
        path = Path(named.removeprefix("unix://"))
        if path.is_absolute() and _is_socket(root / path.relative_to("/")):
            return path
    return next((Path("/") / name for name in _SOCKETS if _is_socket(root / name)), None)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _find_driver(cgroups: CgroupLayout, named: object) -> str | None:
    if isinstance(named, str) and named.lower() in DRIVERS:
        return named.lower()
    return next((driver for name, driver in _TREES.items() if (cgroups.root / name).is_dir()), None)


class ConfigurationError(SlicewiseError):
    """A setting of the node with an invalid value."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What the file, or the command line, says of one node; None where it says nothing."""

    scaling: Fraction | None = None
    runtime: Path | None = None
    cgroup_driver: str | None = None
    problems: tuple[str, ...] = ()
    """What could not be read, each with its field and value."""


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """The settings in force on the node, and the source of each."""

    scaling: Fraction
    runtime: Path | None
    cgroup_driver: str
    sources: Mapping[str, str] = field(default_factory=dict)


def read_node_config(source: str, text: str, node: str) -> NodeConfig:
    """What the file says of this node; comments after `#` and `//` are ignored."""
    plain = _COMMENTS.sub(lambda found: found[1] or "", text)
    try:
        document = msgspec.json.decode(plain)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return NodeConfig(problems=(f"{source}: {error}; expected JSON {_FORM}",))
    entries = document.get("nodeConfig") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return NodeConfig(problems=(_refuse(f"{source}: nodeConfig", entries, f"a list {_FORM}"),))
    found = [
        (f"{source}: nodeConfig[{at}]", entry)
        for at, entry in enumerate(entries)
        if isinstance(entry, dict) and entry.get("name") == node
    ]
    if not found:
        return NodeConfig()
    problems = [
        _refuse(f"{where}.name", node, "each node once; this entry is not used")
        for where, _ in found[1:]
    ]
    return _read_entry(*found[0], problems)


def load_node_config(path: Path, node: str) -> NodeConfig:
    """What the file says of this node; a missing file says nothing."""
    try:
        text = path.read_text(errors="strict")
    except FileNotFoundError:
        return NodeConfig()
    except (OSError, UnicodeError) as error:
        return NodeConfig(problems=(f"cannot read {path}: {error}; mount the ConfigMap there",))
    return read_node_config(str(path), text, node)


def read_scaling(field_name: str, value: object) -> Fraction:
    """The fraction of each GPU's memory to offer, above 0 and up to 1, exactly as written."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        # Through its shortest text, so that 0.9 is nine tenths and not a little less.
        scaling = Fraction(Decimal(str(value)))
        if 0 < scaling <= 1:
            return scaling
    raise ConfigurationError(_refuse(field_name, value, "a number above 0 and at most 1"))


def resolve_setup(config: NodeConfig, flags: NodeConfig, host: DetectedHost) -> NodeSetup:
    """The settings in force: the file's before the flags', then what was detected on the host."""
    sources: dict[str, str] = {}

    def choose(name: str, detected: Any, default: Any = None) -> Any:
        # gpu-manager lets its file, which knows single nodes, beat flags that all of them share.
        choices = {
            "file": getattr(config, name),
            "flag": getattr(flags, name),
            "host": detected,
            "default": default,
        }
        found = (origin for origin, value in choices.items() if value is not None)
        sources[name] = next(found, "nothing")
        return choices.get(sources[name])

    return NodeSetup(
        choose("scaling", None, Fraction(1)),
        choose("runtime", host.runtime),
        choose("cgroup_driver", host.cgroup_driver, DRIVERS[0]),
        sources,
    )


def _read_entry(where: str, entry: Mapping[str, object], problems: list[str]) -> NodeConfig:
    scaling: Fraction | None = None
    given = entry.get("deviceMemoryScaling")
    # A zero is how the original writes that nothing is configured.
    if given not in (None, 0) or isinstance(given, bool):
        try:
            scaling = read_scaling(f"{where}.deviceMemoryScaling", given)
        except ConfigurationError as error:
            problems.append(str(error))
    runtime = _read_text(where, "containerRuntimeEndpoint", entry, problems)
    endpoint = None if runtime is None else runtime.removeprefix("unix://")
    if endpoint is not None and not endpoint.startswith("/"):
        expected = "a path like '/run/containerd/containerd.sock'"
        problems.append(_refuse(f"{where}.containerRuntimeEndpoint", runtime, expected))
        endpoint = None
    driver = _read_text(where, "cgroupDriver", entry, problems)
    if driver is not None and driver.lower() not in DRIVERS:
        problems.append(_refuse(f"{where}.cgroupDriver", driver, " or ".join(DRIVERS)))
        driver = None
    return NodeConfig(
        scaling,
        Path(endpoint) if endpoint else None,
        driver.lower() if driver else None,
        tuple(problems),
    )


def _read_text(
    where: str, key: str, entry: Mapping[str, object], problems: list[str]
) -> str | None:
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        problems.append(_refuse(f"{where}.{key}", value, "a text"))
        return None
    return value.strip()


def _refuse(field_name: str, value: object, expected: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{field_name}={shown}: expected {expected}"
