"""Every node's report as one Kubernetes list: what the metrics API answers and readers decode.

A list with `since` holds what changed after that version and the names of nodes that are gone;
one without it is complete.
"""

from typing import Final

import msgspec

from slicewise.reports.report import NodeReport

GROUP: Final = "metrics.slicewise.io"
VERSION: Final = "v1alpha1"
RESOURCE: Final = "nodereports"
KIND: Final = "NodeReport"
LIST_PATH: Final = f"/apis/{GROUP}/{VERSION}/{RESOURCE}"
HEARD: Final = "heard"
SILENT: Final = "silent"
UNKNOWN: Final = "unknown"
"""What `status.agent` says: unknown is an agent that sent reports and never a heartbeat."""


class ItemMetadata(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Name and version of one node's report."""

    name: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""


class AgentStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    agent: str = ""


class NodeReportItem(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One node: its newest report, and whether its agent is still heard."""

    metadata: ItemMetadata
    status: AgentStatus
    report: NodeReport


class NodeReportList(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The list as it is read; what it is called does not matter to a reader."""

    metadata: ItemMetadata = ItemMetadata()
    since: str = ""
    deleted: tuple[str, ...] = ()
    items: tuple[NodeReportItem, ...] = ()


_DECODER: Final = msgspec.json.Decoder(NodeReportList)


def decode_list(body: bytes) -> NodeReportList:
    """The list in these bytes; raises msgspec.DecodeError when there is none."""
    return _DECODER.decode(body)
