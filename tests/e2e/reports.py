"""What containers of a real node say of themselves: their environment and device nodes.

They say it in their logs, which are read from the node's folder, one file per start.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DEVICE = re.compile(r"c\S+ +\d+ +\S+ +\S+ +(\d+), +(\d+) .* (\S+)")
_VARIABLES, _DEVICES, _FILES, _END = "== variables", "== devices", "== files", "== end"
# Output that ends in a sleep, so that the container stays and can be looked at.
SCRIPT = (
    f"echo '{_VARIABLES}'; env; echo '{_DEVICES}'; ls -l /dev /host/dev 2>/dev/null;"
    f" echo '{_FILES}'; find /etc/vcuda /usr/local/nvidia 2>/dev/null; echo '{_END}';"
)
COMMAND = ["sh", "-c", f"{SCRIPT} exec sleep 1000000"]


@dataclass(frozen=True, slots=True)
class Report:
    """One start of one container, as seen from inside; devices by path."""

    variables: Mapping[str, str]
    devices: Mapping[str, tuple[int, int]]
    files: tuple[str, ...]


def read_report(text: str) -> Report | None:
    """What a log in the runtime's own form says; None while it is unfinished."""
    lines = [line.split(" ", 3)[3] for line in text.splitlines() if line.count(" ") >= 3]
    try:
        marks = [lines.index(mark) for mark in (_VARIABLES, _DEVICES, _FILES, _END)]
    except ValueError:
        return None
    told, listed, found = (lines[a + 1 : b] for a, b in itertools.pairwise(marks))
    variables = dict(line.split("=", 1) for line in told if "=" in line)
    return Report(variables, dict(_read_devices(listed)), tuple(found))


def _read_devices(listed: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    folder = "/dev"
    for line in listed:
        if line.startswith("/") and line.endswith(":"):
            folder = line[:-1]
        elif match := _DEVICE.fullmatch(line):
            yield f"{folder}/{match[3]}", (int(match[1]), int(match[2]))


def read_reports(log: Path, pod: Mapping[str, Any]) -> dict[str, list[Report]]:
    """Every finished report of a pod by container name, oldest first, from the node's /var/log."""
    meta = pod["metadata"]
    folder = log / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
    return {
        container["name"]: [
            report
            for path in sorted(folder.glob(f"{container['name']}/*.log"))
            if (report := read_report(path.read_text(errors="replace")))
        ]
        for container in pod["spec"]["containers"]
    }


def gpu_devices(report: Report) -> dict[str, tuple[int, int]]:
    """The device nodes of GPUs and of the driver itself, by path."""
    return {
        path: numbers
        for path, numbers in report.devices.items()
        if "nvidia" in path or "gpu" in path
    }
