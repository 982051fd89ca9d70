"""nvidia-gpu-scheduler's objects, in its order of fields and with its omissions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from slicewise.metricsapi.registry import AgentHealth, NodeRecord, NodeRegistry
from slicewise.reports import NodeReport
from slicewise.reports.gpu_documents import GpuNodeSpec, GpuPodSpec


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node that no later event alters."""

    name: str
    report: NodeReport
    health: AgentHealth
    heard: datetime | None
    created: datetime | None
    received: datetime | None
    since: datetime | None
    revision: int


def make_node_object(registry: NodeRegistry, record: NodeRecord) -> NodeObject:
    return NodeObject(
        record.name,
        record.report,
        record.health,
        registry.last_heard(record),
        record.created,
        record.received,
        record.since,
        record.revision,
    )


class PodStatus(msgspec.Struct, omit_defaults=True):
    last_changed_time: str = ""


class PodDocument(msgspec.Struct, omit_defaults=True, rename={"api_version": "apiVersion"}):
    """A PodResource or GpuPod."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] | UnsetType = UNSET
    spec: GpuPodSpec = msgspec.field(default_factory=GpuPodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeDocument(msgspec.Struct, omit_defaults=True, rename={"api_version": "apiVersion"}):
    """A GpuInfo or GpuNode."""

    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] | UnsetType = UNSET
    spec: GpuNodeSpec | None = None
    status: dict[str, str] = msgspec.field(default_factory=dict)


def write_age(then: datetime | None, now: datetime) -> str:
    """How long ago, in the one or two units that kubectl shows."""
    if then is None:
        return "<unknown>"
    seconds = max(0, int((now - then).total_seconds()))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
