"""Tables for `kubectl get`: the usual columns of each kind, drawn by the server.

A kind without columns of its own shows its name and age.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slicewise.playground.cells import (
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
from slicewise.playground.resources import Object
from slicewise.playground.views import META, partial_metadata

Cell = Callable[[Object, datetime], Any]


@dataclass(frozen=True, slots=True)
class Column:
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


NAME = Column("Name", _path("metadata", "name"))
AGE = Column("Age", lambda item, now: age(item["metadata"].get("creationTimestamp"), now))
_IMAGES = (
    Column("Containers", _plain(container_names), priority=1),
    Column("Images", _plain(container_images), priority=1),
    Column("Selector", _plain(render_selector), priority=1),
)

COLUMNS: Mapping[str, Sequence[Column]] = {
    "Pod": (
        NAME,
        Column("Ready", _plain(pod_ready)),
        Column("Status", _plain(pod_status)),
        Column("Restarts", _plain(pod_restarts)),
        AGE,
        Column("IP", _path("status", "podIP"), priority=1),
        Column("Node", _path("spec", "nodeName"), priority=1),
        Column("Nominated Node", _path("status", "nominatedNodeName"), priority=1),
        Column("Readiness Gates", lambda _item, _now: "<none>", priority=1),
    ),
    "Node": (
        NAME,
        Column("Status", _plain(node_status)),
        Column("Roles", _plain(node_roles)),
        AGE,
        Column("Version", _path("status", "nodeInfo", "kubeletVersion", absent="")),
        Column("Internal-IP", _plain(lambda node: node_address(node, "InternalIP")), priority=1),
        Column("External-IP", _plain(lambda node: node_address(node, "ExternalIP")), priority=1),
        Column("OS-Image", _path("status", "nodeInfo", "osImage", absent="<unknown>"), priority=1),
        Column(
            "Kernel-Version",
            _path("status", "nodeInfo", "kernelVersion", absent="<unknown>"),
            priority=1,
        ),
        Column(
            "Container-Runtime",
            _path("status", "nodeInfo", "containerRuntimeVersion", absent="<unknown>"),
            priority=1,
        ),
    ),
    "Namespace": (NAME, Column("Status", _path("status", "phase", absent="")), AGE),
    "Event": (
        Column("Last Seen", lambda item, now: age(event_last_seen(item), now)),
        Column("Type", _path("type", absent="")),
        Column("Reason", _path("reason", absent="")),
        Column(
            "Object",
            _plain(
                lambda item: (
                    f"{(item.get('involvedObject') or {}).get('kind', '').lower()}/"
                    f"{(item.get('involvedObject') or {}).get('name', '')}"
                )
            ),
        ),
        Column("Subobject", _path("involvedObject", "fieldPath", absent=""), priority=1),
        Column("Source", _plain(event_source), priority=1),
        Column("Message", _path("message", absent="")),
        Column(
            "First Seen", lambda item, now: age(event_last_seen(item, "first"), now), priority=1
        ),
        Column("Count", _path("count", absent=1), type="integer", priority=1),
        Column("Name", _path("metadata", "name"), priority=1),
    ),
    "ConfigMap": (NAME, Column("Data", _size("data"), type="integer"), AGE),
    "Secret": (
        NAME,
        Column("Type", _path("type")),
        Column("Data", _size("data"), type="integer"),
        AGE,
    ),
    "ServiceAccount": (NAME, Column("Secrets", _size("secrets"), type="integer"), AGE),
    "Service": (
        NAME,
        Column("Type", _path("spec", "type")),
        Column("Cluster-IP", _path("spec", "clusterIP")),
        AGE,
    ),
    "Lease": (NAME, Column("Holder", _path("spec", "holderIdentity", absent="")), AGE),
    "Deployment": (
        NAME,
        Column("Ready", _plain(deployment_ready)),
        Column("Up-to-date", _count("status", "updatedReplicas"), type="integer"),
        Column("Available", _count("status", "availableReplicas"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "ReplicaSet": (
        NAME,
        Column("Desired", _count("spec", "replicas"), type="integer"),
        Column("Current", _count("status", "replicas"), type="integer"),
        Column("Ready", _count("status", "readyReplicas"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "StatefulSet": (NAME, Column("Ready", _plain(deployment_ready)), AGE, *_IMAGES[:2]),
    "DaemonSet": (
        NAME,
        Column("Desired", _count("status", "desiredNumberScheduled"), type="integer"),
        Column("Current", _count("status", "currentNumberScheduled"), type="integer"),
        Column("Ready", _count("status", "numberReady"), type="integer"),
        AGE,
        *_IMAGES,
    ),
    "Job": (
        NAME,
        Column(
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
        Column("Value", _count("value"), type="integer"),
        Column("Global-Default", _path("globalDefault", absent=False), type="boolean"),
        AGE,
    ),
    "PodDisruptionBudget": (
        NAME,
        Column("Min Available", _path("spec", "minAvailable", absent="N/A")),
        Column("Max Unavailable", _path("spec", "maxUnavailable", absent="N/A")),
        Column("Allowed Disruptions", _count("status", "disruptionsAllowed"), type="integer"),
        AGE,
    ),
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """How one request wants its table."""

    kind: str
    now: datetime
    include: str = "Metadata"

    @property
    def columns(self) -> Sequence[Column]:
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
