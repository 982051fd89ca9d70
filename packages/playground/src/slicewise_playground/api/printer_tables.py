"""Tables for `kubectl get`: the usual columns of each kind, drawn by the server.

A kind without columns of its own shows its name and age.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slicewise_playground.api.encodings import META, partial_metadata
from slicewise_playground.api.printer_cells import (
    container_images,
    container_names,
    deployment_ready,
    event_last_seen,
    event_source,
    node_address,
    node_roles,
    node_status,
    pod_ready,
    pod_restarts,
    pod_status,
    render_selector,
)
from slicewise_playground.objects.resources import Object

Cell = Callable[[Object, datetime], Any]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column: its title and how its cell is drawn; priority 1 shows only with `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0

    def definition(self) -> Object:
        """The column for the wire."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.name,
            "priority": self.priority,
        }


def age(since: str | None, now: datetime) -> str:
    """The time since a moment, in the two largest units that matter."""
    if not since:
        return "<unknown>"
    moment = datetime.fromisoformat(since)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return duration(int((now - moment).total_seconds()))


def duration(seconds: int) -> str:
    """A number of seconds as kubectl writes it."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _pair(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    """Two units, the smaller left out when zero."""
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _path(*steps: str, absent: Any = "<none>") -> Cell:
    """A cell that shows a field."""

    def draw(item: Object, _now: datetime) -> Any:
        value: Any = item
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        return absent if value in (None, "") else value

    return draw


def _count(*steps: str) -> Cell:
    """A cell that shows a number, 0 when absent."""
    return _path(*steps, absent=0)


def _size(field: str) -> Cell:
    """A cell that counts the members of a field."""
    return lambda item, _now: len(item.get(field) or ())


def _plain(draw: Callable[[Object], Any]) -> Cell:
    """A cell that does not depend on the time."""
    return lambda item, _now: draw(item)


def _first_seen(event: Object, now: datetime) -> str:
    """The age of an event's first sighting."""
    return age(event_last_seen(event, "first"), now)


NAME = PrinterColumn("Name", _path("metadata", "name"))
AGE = PrinterColumn("Age", lambda item, now: age(item["metadata"].get("creationTimestamp"), now))
_IMAGES = (
    PrinterColumn("Containers", _plain(container_names), priority=1),
    PrinterColumn("Images", _plain(container_images), priority=1),
    PrinterColumn("Selector", _plain(render_selector), priority=1),
)

COLUMNS: Mapping[str, Sequence[PrinterColumn]] = {
    "Pod": (
        NAME,
        PrinterColumn("Ready", _plain(pod_ready)),
        PrinterColumn("Status", _plain(pod_status)),
        PrinterColumn("Restarts", _plain(pod_restarts)),
        AGE,
        PrinterColumn("IP", _path("status", "podIP"), priority=1),
        PrinterColumn("Node", _path("spec", "nodeName"), priority=1),
        PrinterColumn("Nominated Node", _path("status", "nominatedNodeName"), priority=1),
        PrinterColumn("Readiness Gates", lambda _item, _now: "<none>", priority=1),
    ),
    "Node": (
        NAME,
        PrinterColumn("Status", _plain(node_status)),
        PrinterColumn("Roles", _plain(node_roles)),
        AGE,
        PrinterColumn("Version", _path("status", "nodeInfo", "kubeletVersion", absent="")),
        PrinterColumn(
            "Internal-IP", _plain(lambda node: node_address(node, "InternalIP")), priority=1
        ),
        PrinterColumn(
            "External-IP", _plain(lambda node: node_address(node, "ExternalIP")), priority=1
        ),
        PrinterColumn(
            "OS-Image", _path("status", "nodeInfo", "osImage", absent="<unknown>"), priority=1
        ),
        PrinterColumn(
            "Kernel-Version",
            _path("status", "nodeInfo", "kernelVersion", absent="<unknown>"),
            priority=1,
        ),
        PrinterColumn(
            "Container-Runtime",
            _path("status", "nodeInfo", "containerRuntimeVersion", absent="<unknown>"),
            priority=1,
        ),
    ),
    "Namespace": (NAME, PrinterColumn("Status", _path("status", "phase", absent="")), AGE),
    "Event": (
        PrinterColumn("Last Seen", lambda item, now: age(event_last_seen(item), now)),
        PrinterColumn("Type", _path("type", absent="")),
        PrinterColumn("Reason", _path("reason", absent="")),
        PrinterColumn(
            "Object",
            _plain(
                lambda item: (
                    f"{(item.get('involvedObject') or {}).get('kind', '').lower()}/"
                    f"{(item.get('involvedObject') or {}).get('name', '')}"
                )
            ),
        ),
        PrinterColumn("Subobject", _path("involvedObject", "fieldPath", absent=""), priority=1),
        PrinterColumn("Source", _plain(event_source), priority=1),
        PrinterColumn("Message", _path("message", absent="")),
        PrinterColumn(
            "First Seen", lambda item, now: age(event_last_seen(item, "first"), now), priority=1
        ),
        PrinterColumn("Count", _path("count", absent=1), type="integer", priority=1),
        PrinterColumn("Name", _path("metadata", "name"), priority=1),
    ),
    "ConfigMap": (NAME, PrinterColumn("Data", _size("data"), type="integer"), AGE),
    "Secret": (
        NAME,
        PrinterColumn("Type", _path("type")),
        PrinterColumn("Data", _size("data"), type="integer"),
        AGE,
    ),
    "ServiceAccount": (NAME, PrinterColumn("Secrets", _size("secrets"), type="integer"), AGE),
    "Service": (
        NAME,
        PrinterColumn("Type", _path("spec", "type")),
        PrinterColumn("Cluster-IP", _path("spec", "clusterIP")),
        AGE,
    ),
    "Lease": (NAME, PrinterColumn("Holder", _path("spec", "holderIdentity", absent="")), AGE),
    "Deployment": (
        NAME,
        PrinterColumn("Ready", _plain(deployment_ready)),
        PrinterColumn("Up-to-date", _count("status", "updatedReplicas"), type="integer"),
        PrinterColumn("Available", _count("status", "availableReplicas"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "ReplicaSet": (
        NAME,
        PrinterColumn("Desired", _count("spec", "replicas"), type="integer"),
        PrinterColumn("Current", _count("status", "replicas"), type="integer"),
        PrinterColumn("Ready", _count("status", "readyReplicas"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "StatefulSet": (NAME, PrinterColumn("Ready", _plain(deployment_ready)), AGE, *_IMAGES[:2]),
    "DaemonSet": (
        NAME,
        PrinterColumn("Desired", _count("status", "desiredNumberScheduled"), type="integer"),
        PrinterColumn("Current", _count("status", "currentNumberScheduled"), type="integer"),
        PrinterColumn("Ready", _count("status", "numberReady"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "Job": (
        NAME,
        PrinterColumn(
            "Completions",
            _plain(
                lambda job: (
                    f"{(job.get('status') or {}).get('succeeded', 0)}/"
                    f"{job['spec'].get('completions', 1)}"
                )
            ),
        ),
        AGE,
        *_IMAGES,
    ),
    "PriorityClass": (
        NAME,
        PrinterColumn("Value", _count("value"), type="integer"),
        PrinterColumn("Global-Default", _path("globalDefault", absent=False), type="boolean"),
        AGE,
    ),
    "PodDisruptionBudget": (
        NAME,
        PrinterColumn("Min Available", _path("spec", "minAvailable", absent="N/A")),
        PrinterColumn("Max Unavailable", _path("spec", "maxUnavailable", absent="N/A")),
        PrinterColumn(
            "Allowed Disruptions", _count("status", "disruptionsAllowed"), type="integer"
        ),
        AGE,
    ),
}


@dataclass(frozen=True, slots=True)
class TablePrinter:
    """How one request wants its table."""

    kind: str
    now: datetime
    include: str = "Metadata"

    @property
    def columns(self) -> Sequence[PrinterColumn]:
        """The columns of the kind."""
        return COLUMNS.get(self.kind, (NAME, AGE))

    def table(self, items: Sequence[Object], metadata: Object, *, head: bool = True) -> Object:
        """The table of these objects; a watch sends its columns only once."""
        return {
            "kind": "Table",
            "apiVersion": META,
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in self.columns] if head else [],
            "rows": [self._row(item) for item in items],
        }

    def _row(self, item: Object) -> Object:
        """The row of one object."""
        row: Object = {"cells": [column.cell(item, self.now) for column in self.columns]}
        if self.include == "Object":
            row["object"] = item
        elif self.include != "None":
            row["object"] = partial_metadata(item)
        return row
