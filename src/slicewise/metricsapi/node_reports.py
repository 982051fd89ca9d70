"""Every node's report in one answer, under a group of our own: what `top` and the page read.

A client that hands back the version of its last answer gets what changed since then.
"""

from typing import Final

import msgspec

from slicewise.httpd import Answer, HttpResponse
from slicewise.metricsapi.registry import AgentHealth, NodeRecord, NodeRegistry
from slicewise.metricsapi.status import answer_list, refuse
from slicewise.reports.gpu_documents import write_time
from slicewise.reports.listing import (
    GROUP,
    HEARD,
    KIND,
    SILENT,
    UNKNOWN,
    VERSION,
    AgentStatus,
    ItemMetadata,
    NodeReportItem,
)

_AGENTS: Final = {
    AgentHealth.HEARD: HEARD,
    AgentHealth.SILENT: SILENT,
    AgentHealth.UNKNOWN: UNKNOWN,
}
_ENCODER: Final = msgspec.json.Encoder()


def list_reports(registry: NodeRegistry, since: str = "") -> Answer:
    """Every report, or those that changed after a version that is still known."""
    revision = registry.read_report_version(since) if since else None
    records, deleted = registry.reports_since(-1 if revision is None else revision)
    head: dict[str, object] = {
        "kind": f"{KIND}List",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {"resourceVersion": registry.report_version},
    }
    if revision is not None:
        head["since"] = since
        head["deleted"] = deleted
    head["items"] = []
    return answer_list((_ENCODER.encode(head)[:-2], b"]}"), records, write_item)


def read_report(registry: NodeRegistry, name: str) -> HttpResponse:
    record = registry.records.get(name)
    if record is None or record.created is None:
        return refuse(404, f'nodereports.{GROUP} "{name}" not found')
    head = _ENCODER.encode({"kind": KIND, "apiVersion": f"{GROUP}/{VERSION}"})[:-1]
    return HttpResponse(200, head + b"," + write_item(record)[1:])


def write_item(record: NodeRecord) -> bytes:
    """One node as an item of the list, encoded once for all who ask before it changes."""
    if record.encoded is None:
        created = "" if record.created is None else write_time(record.created)
        item = NodeReportItem(
            metadata=ItemMetadata(
                name=record.name,
                resource_version=str(record.report_revision),
                creation_timestamp=created,
            ),
            status=AgentStatus(agent=_AGENTS[record.health]),
            report=record.report,
        )
        record.encoded = _ENCODER.encode(item)
    return record.encoded
