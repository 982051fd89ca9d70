"""How one node differs from the others: gpu-manager's `nodeConfig`, and what the host shows.

Each field stands alone: one that cannot be read is reported by name and value, and leaves the
others, and every other node's, in force.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec

from slicewise.model import SlicewiseError
from slicewise.nodeagent.host_detection import DRIVERS, DetectedHost

# Strings are matched first, so that what looks like a comment inside one is kept.
_COMMENTS: Final = re.compile(r'("(?:\\.|[^"\\\n])*")|(?:#|//)[^\n]*')
_SHOWN: Final = 80
_FORM: Final = """like '{"nodeConfig": [{"name": "n1", "deviceMemoryScaling": 1}]}'"""


class ConfigurationError(SlicewiseError):
    """A setting of the node with an invalid value."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What the file says of one node; None where it says nothing."""

    scaling: Fraction | None = None
    runtime: Path | None = None
    cgroup_driver: str | None = None
    problems: tuple[str, ...] = ()
    """What could not be read, each with its field and value."""


@dataclass(frozen=True, slots=True)
class NodeFlags:
    """The same from the command line; None where no flag is given."""

    scaling: Fraction | None = None
    runtime: Path | None = None
    cgroup_driver: str | None = None


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
    whole = Fraction(1)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        # Through its shortest text, so that 0.9 is nine tenths and not a little less.
        scaling = Fraction(Decimal(str(value)))
        if 0 < scaling <= whole:
            return scaling
    raise ConfigurationError(_refuse(field_name, value, "a number above 0 and at most 1"))


def resolve_setup(config: NodeConfig, flags: NodeFlags, host: DetectedHost) -> NodeSetup:
    """The settings in force: the file's before the flags', then what was detected on the host."""
    sources: dict[str, str] = {}

    def choose(name: str, *choices: tuple[str, Any]) -> Any:
        for origin, value in choices:
            if value is not None:
                sources[name] = origin
                return value
        sources[name] = "nothing"
        return None

    # gpu-manager lets its file, which knows single nodes, beat flags that all of them share.
    return NodeSetup(
        choose(
            "scaling", ("file", config.scaling), ("flag", flags.scaling), ("default", Fraction(1))
        ),
        choose(
            "runtime", ("file", config.runtime), ("flag", flags.runtime), ("host", host.runtime)
        ),
        choose(
            "cgroup_driver",
            ("file", config.cgroup_driver),
            ("flag", flags.cgroup_driver),
            ("host", host.cgroup_driver),
            ("default", DRIVERS[0]),
        ),
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
