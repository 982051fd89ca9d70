"""Writing to one Node: annotations and labels, and amounts that no device plugin carries."""

from collections.abc import Mapping
from typing import Any, Final

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.objects import Metadata, NodeBody, ObjectReader
from slicewise.kube.watch import Source
from slicewise.model import NodeNotice

_NODES: Final = "/api/v1/nodes"


class NodeWrites:
    """Writes to the Node of one name; every failure is a KubeError."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._path = f"{_NODES}/{name}"

    async def annotate(
        self, annotations: Mapping[str, str | None], labels: Mapping[str, str | None] | None = None
    ) -> None:
        """Set these annotations and labels; None takes one away."""
        metadata: dict[str, Any] = {"annotations": dict(annotations), "labels": dict(labels or {})}
        await self._patch(Call("patch", "nodes", self._path), {"metadata": metadata})

    async def set_amounts(self, amounts: Mapping[str, int]) -> None:
        """The node has so many of each of these resources."""
        texts = {name: str(amount) for name, amount in amounts.items()}
        body = {"status": {"capacity": texts, "allocatable": texts}}
        await self._patch(Call("patch", "nodes/status", f"{self._path}/status"), body)

    async def _patch(self, call: Call, body: object) -> None:
        await self._client.send(call, body, content_type=MERGE_PATCH)


def one_node(reader: ObjectReader, name: str) -> Source[NodeBody, NodeNotice]:
    """The node of one name."""
    return Source(
        resource="nodes",
        path=_NODES,
        body=NodeBody,
        read=reader.read_node_notice,
        key=_name,
        query={"fieldSelector": f"metadata.name={name}"},
    )


def _name(metadata: Metadata) -> str:
    return metadata.name
