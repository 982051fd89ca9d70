"""What `kubectl get` prints: one row per pod or node, columns that answer what people ask."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from slicewise.metricsapi.api_versions import (
    NODES,
    PODS,
    ApiObject,
    DocumentWriter,
    PodObject,
    ServedResource,
)
from slicewise.metricsapi.documents import NodeObject, write_age
from slicewise.reports.gpu_documents import find_gpus

NONE: Final = "<none>"
METADATA: Final = "Metadata"
OBJECT: Final = "Object"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; those of priority 1 are shown by `-o wide` alone."""

    name: str
    about: str
    type: str = "string"
    format: str = ""
    priority: int = 0


_POD_COLUMNS: Final = (
    TableColumn("Namespace", "Namespace of the pod."),
    TableColumn("Pod", "Name of the pod.", format="name"),
    TableColumn("Node", "Where it runs."),
    TableColumn("Containers", "Containers that hold GPUs.", "integer"),
    TableColumn("GPUs", "GPUs by index, per container."),
    TableColumn("Memory", "Memory in use of what is allocated, in MiB."),
    TableColumn("Cores", "Compute in use, in percent of one GPU."),
    TableColumn("Changed", "When its GPUs changed last."),
    TableColumn("Models", "Models of its GPUs.", priority=1),
    TableColumn("UUIDs", "UUIDs of its GPUs.", priority=1),
)
_NODE_COLUMNS: Final = (
    TableColumn("Node", "Name of the node.", format="name"),
    TableColumn("Healthy", "Whether its agent is heard."),
    TableColumn("GPUs", "How many GPUs it has.", "integer"),
    TableColumn("Busy", "How many of them are held.", "integer"),
    TableColumn("Unhealthy", "How many of them are unhealthy.", "integer"),
    TableColumn("Memory", "Memory in use of all there is, in MiB."),
    TableColumn("Models", "How many GPUs of which model."),
    TableColumn("Heard", "When its agent was heard last."),
    TableColumn("UUIDs", "UUIDs of its GPUs.", priority=1),
    TableColumn("Message", "Why GPUs are missing or unhealthy.", priority=1),
)
COLUMNS: Final = {PODS: _POD_COLUMNS, NODES: _NODE_COLUMNS}


@dataclass(frozen=True, slots=True)
class Tabulator:
    writer: DocumentWriter
    resource: ServedResource
    include: str
    """What of the object goes with each row: Metadata, Object or None."""
    now: Callable[[], datetime]

    def table(self, facts: Iterable[ApiObject], revision: int) -> dict[str, Any]:
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(revision)},
            "columnDefinitions": [
                {
                    "name": column.name,
                    "type": column.type,
                    "format": column.format,
                    "description": column.about,
                    "priority": column.priority,
                }
                for column in COLUMNS[self.resource.subject]
            ],
            "rows": [self.row(item) for item in facts],
        }

    def row(self, item: ApiObject) -> dict[str, Any]:
        now = self.now()
        cells = pod_cells(item, now) if isinstance(item, PodObject) else node_cells(item, now)
        if self.include == OBJECT:
            return {"cells": cells, "object": self.writer.write_object(self.resource, item)}
        if self.include == METADATA:
            metadata = self.writer.write_metadata(item)
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            return {"cells": cells, "object": {**partial, "metadata": metadata}}
        return {"cells": cells}


def pod_cells(item: PodObject, now: datetime) -> list[Any]:
    pod, gpus = item.held.pod, find_gpus(item.report)
    holding = [each for each in pod.containers if each.devices]
    devices = [device for each in holding for device in each.devices]
    places = []
    for each in holding:
        indexes = dict.fromkeys(
            str(gpus[d.gpu].index) if d.gpu in gpus else d.gpu for d in each.devices
        )
        places.append(f"{each.name}={','.join(indexes)}")
    uses = [device.use for device in devices if device.use is not None]
    allocated = sum(
        gpus[d.gpu].memory_mib if d.memory_mib is None and d.gpu in gpus else d.memory_mib or 0
        for d in devices
    )
    used = str(sum(use.memory_mib for use in uses)) if uses else "?"
    uuids = dict.fromkeys(device.gpu for device in devices)
    models = dict.fromkeys(gpus[uuid].model for uuid in uuids if uuid in gpus)
    return [
        pod.namespace,
        pod.name,
        item.held.node,
        len(holding),
        " ".join(places) or NONE,
        f"{used}/{allocated}" if devices else NONE,
        f"{sum(use.cores for use in uses)}%" if uses else "?",
        write_age(item.held.changed, now),
        ",".join(models) or NONE,
        ",".join(uuids) or NONE,
    ]


def node_cells(view: NodeObject, now: datetime) -> list[Any]:
    gpus = view.report.gpus
    models: dict[str, int] = {}
    for gpu in gpus:
        models[gpu.model] = models.get(gpu.model, 0) + 1
    uses = [gpu.use for gpu in gpus if gpu.use is not None]
    used = str(sum(use.memory_mib for use in uses)) if uses else "?"
    reasons = [f"{gpu.uuid}: {gpu.why}" for gpu in gpus if not gpu.healthy]
    return [
        view.name,
        view.health.value,
        len(gpus),
        len(view.report.busy),
        sum(not gpu.healthy for gpu in gpus),
        f"{used}/{sum(gpu.memory_mib for gpu in gpus)}" if gpus else NONE,
        ", ".join(f"{count} {model}" for model, count in sorted(models.items())) or NONE,
        write_age(view.heard, now),
        ",".join(gpu.uuid for gpu in gpus) or NONE,
        "; ".join(filter(None, (view.report.why, *reasons))) or NONE,
    ]
