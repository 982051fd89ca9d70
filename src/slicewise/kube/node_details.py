"""Nodes as people ask about them: address, runtime, readiness, labels and taints beside GPUs."""

from typing import Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.objects import NodeBody, NodeSpec, NodeStatus, ObjectReader, is_ready
from slicewise.kube.reads import list_all, read_one
from slicewise.kube.sources import by_name
from slicewise.kube.watch import WatchSource
from slicewise.model import NodeDetails, Taint

_PATH: Final = "/api/v1/nodes"


class AddressBody(msgspec.Struct, gc=False):
    type: str = ""
    address: str = ""


class SystemBody(msgspec.Struct, rename="camel", gc=False):
    """The versions of what runs on a node."""

    container_runtime_version: str = ""
    kubelet_version: str = ""


class TaintBody(msgspec.Struct, gc=False):
    """What keeps pods off a node unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeDetailsSpec(NodeSpec, gc=False):
    taints: list[TaintBody] | None = None


class NodeDetailsStatus(NodeStatus, rename="camel", gc=False):
    """The status of a node, with what people ask for."""

    addresses: list[AddressBody] | None = None
    node_info: SystemBody = msgspec.field(default_factory=SystemBody)


class NodeDetailsBody(NodeBody, gc=False):
    spec: NodeDetailsSpec = msgspec.field(default_factory=NodeDetailsSpec)
    status: NodeDetailsStatus = msgspec.field(default_factory=NodeDetailsStatus)


def node_details(reader: ObjectReader) -> WatchSource[NodeDetailsBody, NodeDetails]:
    """All nodes, with what pods may demand of them."""
    return WatchSource(
        resource="nodes",
        kind="Node",
        path=_PATH,
        body=NodeDetailsBody,
        read=lambda body: read_node_details(body, reader),
        key=by_name,
    )


async def list_node_details(client: Client, reader: ObjectReader) -> list[NodeDetails]:
    return sorted(await list_all(client, node_details(reader)), key=lambda each: each.name)


async def find_node_details(client: Client, reader: ObjectReader, name: str) -> NodeDetails | None:
    body = await read_one(client, Call("get", "nodes", f"{_PATH}/{name}"), NodeDetailsBody)
    return None if body is None else read_node_details(body, reader)


def read_node_details(body: NodeDetailsBody, reader: ObjectReader) -> NodeDetails:
    spec, status = body.spec, body.status
    inside = (each.address for each in status.addresses or () if each.type == "InternalIP")
    return NodeDetails(
        notice=reader.read_node_notice(body),
        labels=body.metadata.labels or {},
        address=next(inside, None),
        ready=is_ready(status),
        unschedulable=spec.unschedulable,
        taints=tuple(Taint(each.key, each.value, each.effect) for each in spec.taints or ()),
        runtime=status.node_info.container_runtime_version,
        kubelet=status.node_info.kubelet_version,
    )
