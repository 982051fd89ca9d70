"""One node as it is shown at one moment, and how times are written."""

from dataclasses import dataclass
from datetime import datetime

from slicewise.metricsapi.registry import AgentHealth, NodeRecord, NodeRegistry
from slicewise.reports import GpuReport, NodeReport


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
    forgotten: bool = False
    """Whether this is the last there will be of it."""

    @property
    def models(self) -> dict[str, list[str]]:
        """UUIDs by model as pods name it, trimmed and in lower case, all in order."""
        found: dict[str, list[str]] = {}
        for gpu in sorted(self.report.gpus, key=lambda gpu: gpu.uuid):
            found.setdefault(gpu.model.strip().lower(), []).append(gpu.uuid)
        return dict(sorted(found.items()))


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


def find_gpus(report: NodeReport) -> dict[str, GpuReport]:
    """The node's GPUs by UUID."""
    return {gpu.uuid: gpu for gpu in report.gpus}


def write_time(moment: datetime) -> str:
    """RFC 3339 to the second, as Go writes it."""
    return _zone(moment.isoformat(timespec="seconds"))


def write_exact_time(moment: datetime) -> str:
    """RFC 3339 with as much of a fraction as there is, as Go writes it."""
    text = moment.isoformat(timespec="microseconds")
    head, zone = text[:26].rstrip("0").rstrip("."), text[26:]
    return _zone(head + zone)


def write_age(then: datetime | None, now: datetime) -> str:
    """How long ago, in the one or two units that kubectl shows."""
    if then is None:
        return "<unknown>"
    seconds = max(0, int((now - then).total_seconds()))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def _zone(text: str) -> str:
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
