"""The types an object's fields must have before any rule looks at it.

Only fields that the rules read are named; the real server knows every field.
"""

from typing import Any, TypeAlias

import msgspec

from slicewise.playground.errors import bad_request
from slicewise.playground.resources import Object, Resource

Texts: TypeAlias = dict[str, str] | None
Amounts: TypeAlias = dict[str, str | int | float] | None


class OwnerReference(msgspec.Struct):
    """Who an object belongs to."""

    apiVersion: str = ""  # noqa: N815
    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(msgspec.Struct):
    """What every object says about itself."""

    name: str | None = None
    generateName: str | None = None  # noqa: N815
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815
    labels: Texts = None
    annotations: Texts = None
    finalizers: list[str] | None = None
    ownerReferences: list[OwnerReference] | None = None  # noqa: N815


class Anything(msgspec.Struct):
    """An object of which only the metadata is checked."""

    metadata: Metadata | None = None


class Resources(msgspec.Struct):
    """What a container asks for."""

    requests: Amounts = None
    limits: Amounts = None


class EnvVar(msgspec.Struct):
    """One environment variable."""

    name: str = ""
    value: str | None = None


class Container(msgspec.Struct):
    """One container of a pod."""

    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    resources: Resources | None = None


class PodSpec(msgspec.Struct):
    """What a pod wants."""

    containers: list[Container] | None = None
    initContainers: list[Container] | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815
    nodeSelector: Texts = None  # noqa: N815
    schedulerName: str | None = None  # noqa: N815
    restartPolicy: str | None = None  # noqa: N815
    priorityClassName: str | None = None  # noqa: N815
    terminationGracePeriodSeconds: int | None = None  # noqa: N815
    tolerations: list[dict[str, Any]] | None = None


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: dict[str, Any] | None = None


class NodeSpec(msgspec.Struct):
    """What an administrator says of a node."""

    taints: list[dict[str, Any]] | None = None
    unschedulable: bool | None = None


class NodeStatus(msgspec.Struct):
    """What a kubelet says of its node."""

    capacity: Amounts = None
    allocatable: Amounts = None
    conditions: list[dict[str, Any]] | None = None
    addresses: list[dict[str, Any]] | None = None


class Node(msgspec.Struct):
    """A node."""

    metadata: Metadata | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMap(msgspec.Struct):
    """Text by key."""

    metadata: Metadata | None = None
    data: Texts = None


class Template(msgspec.Struct):
    """The pods a workload makes."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None


class WorkloadSpec(msgspec.Struct):
    """What a workload wants."""

    replicas: int | None = None
    template: Template | None = None


class Workload(msgspec.Struct):
    """A deployment and its kin."""

    metadata: Metadata | None = None
    spec: WorkloadSpec | None = None


SHAPES: dict[str, type[msgspec.Struct]] = {
    "Pod": Pod,
    "Node": Node,
    "ConfigMap": ConfigMap,
    "Secret": ConfigMap,
    "Deployment": Workload,
    "ReplicaSet": Workload,
    "StatefulSet": Workload,
    "DaemonSet": Workload,
    "Job": Workload,
}


def check_shape(resource: Resource, item: Object) -> None:
    """Raise 400 when a field has the wrong type."""
    try:
        msgspec.convert(item, SHAPES.get(resource.kind, Anything))
    except msgspec.ValidationError as error:
        where = f'{resource.kind} in version "{resource.version}"'
        words = str(error).replace("`", "").replace("$.", "")
        raise bad_request(
            f"{where} cannot be handled as a {resource.kind}: json: cannot unmarshal: {words}"
        ) from error
