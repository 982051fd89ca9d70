"""Writes to Nodes: by a node's own agent, and single annotations on behalf of a person."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from slicewise.kube.client import MERGE_PATCH, Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import KeyFilter, NodeBody, ObjectReader
from slicewise.kube.reads import decode_answer, read_one
from slicewise.model import NodeNotice

_NODE: Final = msgspec.json.Decoder(NodeBody)
_CONFLICT: Final = 409
_ATTEMPTS: Final = 8
# An empty prefix keeps every key.
EVERYTHING: Final = KeyFilter(("",), ("",), ("",))


@dataclass(frozen=True, slots=True)
class NodePatch:
    """What to change of a Node; None takes a key away."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    amounts: Mapping[str, int | None] = field(default_factory=dict)
    """Extended resources that no device plugin carries, in capacity and allocatable."""

    @property
    def empty(self) -> bool:
        return not (self.labels or self.annotations or self.amounts)


class NodePatcher:
    """The Node of one name; every failure is a KubeError."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._reader = ObjectReader(EVERYTHING)
        self._path = f"/api/v1/nodes/{name}"

    async def read(self) -> NodeNotice | None:
        """The Node with all its labels and annotations; None when it is not registered."""
        body = await read_one(self._client, Call("get", "nodes", self._path), NodeBody)
        return None if body is None else self._reader.read_node_notice(body)

    async def patch(self, patch: NodePatch) -> NodeNotice:
        """The Node after all of the change, in one request."""
        body: dict[str, Any] = {
            "metadata": {"labels": dict(patch.labels), "annotations": dict(patch.annotations)}
        }
        if patch.amounts:
            amounts = {
                name: None if amount is None else str(amount)
                for name, amount in patch.amounts.items()
            }
            body["status"] = {"capacity": amounts, "allocatable": amounts}
        # The status of a Node takes changes of its metadata as well, as the kubelet's own do.
        call = Call("patch", "nodes/status", f"{self._path}/status")
        content = await self._client.send(call, body, content_type=MERGE_PATCH)
        return self._reader.read_node_notice(decode_answer(_NODE, call, content))


async def annotate_node(
    client: Client, name: str, key: str, change: Callable[[str], str]
) -> tuple[str, str] | None:
    """An annotation before and after a change, '' for none; None when there is no such node."""
    path = f"/api/v1/nodes/{name}"
    for left in reversed(range(_ATTEMPTS)):
        body = await read_one(client, Call("get", "nodes", path), NodeBody)
        if body is None:
            return None
        before = (body.metadata.annotations or {}).get(key, "")
        after = change(before)
        if after == before:
            return before, after
        # Optimistic locking: no concurrent change is overwritten.
        meta = {
            "resourceVersion": body.metadata.resource_version,
            "annotations": {key: after or None},
        }
        try:
            await client.send(
                Call("patch", "nodes", path), {"metadata": meta}, content_type=MERGE_PATCH
            )
        except RefusedError as error:
            if error.code != _CONFLICT or not left:
                raise
        else:
            return before, after
    raise AssertionError("unreachable")
