"""The resources that are watched, each with its path, its struct and its key.

Pods are keyed by UID, because a name can be reused; nodes and ConfigMaps by name.
"""

from dataclasses import replace
from typing import Final

from slicewise.kube.objects import (
    BareBody,
    ConfigMap,
    ConfigMapBody,
    Metadata,
    NodeBody,
    ObjectReader,
    PodBody,
    read_configmap,
)
from slicewise.kube.watch import WatchSource
from slicewise.model import NodeNotice, Pod

# Pods that have ended hold nothing, and a large cluster keeps many of them for a long time.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


def pods(reader: ObjectReader, selector: str = LIVE_PODS) -> WatchSource[PodBody, Pod]:
    """The pods of all namespaces that match a field selector."""
    return WatchSource(
        resource="pods",
        kind="Pod",
        path="/api/v1/pods",
        body=PodBody,
        read=reader.read_pod,
        key=by_uid,
        query={"fieldSelector": selector} if selector else {},
    )


def nodes(reader: ObjectReader) -> WatchSource[NodeBody, NodeNotice]:
    return WatchSource(
        resource="nodes",
        kind="Node",
        path="/api/v1/nodes",
        body=NodeBody,
        read=reader.read_node_notice,
        key=by_name,
    )


def node_names() -> WatchSource[BareBody, str]:
    """All nodes, of which only the names matter."""
    return WatchSource(
        resource="nodes",
        kind="Node",
        path="/api/v1/nodes",
        body=BareBody,
        read=lambda body: body.metadata.name,
        key=by_name,
    )


def namespaces() -> WatchSource[BareBody, Metadata]:
    """All namespaces, of which only names and labels matter."""
    return WatchSource(
        resource="namespaces",
        kind="Namespace",
        path="/api/v1/namespaces",
        body=BareBody,
        read=lambda body: body.metadata,
        key=by_name,
    )


def one_node(reader: ObjectReader, name: str) -> WatchSource[NodeBody, NodeNotice]:
    return replace(nodes(reader), query={"fieldSelector": f"metadata.name={name}"})


def configmaps(namespace: str, name: str | None = None) -> WatchSource[ConfigMapBody, ConfigMap]:
    """The ConfigMaps of a namespace, or the one of a name."""
    return WatchSource(
        resource="configmaps",
        kind="ConfigMap",
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        body=ConfigMapBody,
        read=read_configmap,
        key=by_name,
        query={} if name is None else {"fieldSelector": f"metadata.name={name}"},
    )


def by_uid(metadata: Metadata) -> str:
    return metadata.uid


def by_name(metadata: Metadata) -> str:
    return metadata.name
