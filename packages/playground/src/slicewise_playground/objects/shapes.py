"""The types an object's fields must have before any rule looks at it.

Only fields that the rules read are named; the real server knows every field.
"""

from typing import Any, TypeAlias

import msgspec

from slicewise_playground.objects.errors import bad_request
from slicewise_playground.objects.resources import ApiResource, Object

Texts: TypeAlias = dict[str, str] | None
Text: TypeAlias = str | None
Number: TypeAlias = int | None
Amounts: TypeAlias = dict[str, str | int | float] | None
Members: TypeAlias = dict[str, Any] | None
Rows: TypeAlias = list[dict[str, Any]] | None


class Shape(msgspec.Struct, rename="camel"):
    """Fields named in Python, spelled on the wire as Kubernetes spells them."""


class OwnerReference(Shape):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(Shape):
    """What every object says about itself."""

    name: Text = None
    generate_name: Text = None
    namespace: Text = None
    uid: Text = None
    resource_version: Text = None
    deletion_timestamp: Text = None
    labels: Texts = None
    annotations: Texts = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class Anything(Shape):
    """An object of which only the metadata is checked."""

    metadata: Metadata | None = None
    spec: Members = None
    status: Members = None


class Resources(Shape):
    """What a container asks for."""

    requests: Amounts = None
    limits: Amounts = None


class FieldPath(Shape):
    """A field of the pod itself."""

    api_version: Text = None
    field_path: Text = None


class EnvSource(Shape):
    """Where the value of a variable comes from."""

    field_ref: FieldPath | None = None


class EnvVar(Shape):
    """One environment variable."""

    name: Text = None
    value: Text = None
    value_from: EnvSource | None = None


class Container(Shape):
    """One container of a pod."""

    name: Text = None
    image: Text = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    ports: Rows = None
    resources: Resources | None = None


class Toleration(Shape):
    """A taint that a pod tolerates."""

    key: Text = None
    operator: Text = None
    effect: Text = None


class PodSpec(Shape):
    """What a pod wants."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: Text = None
    node_selector: Texts = None
    scheduler_name: Text = None
    scheduling_gates: Rows = None
    security_context: Members = None
    restart_policy: Text = None
    priority_class_name: Text = None
    termination_grace_period_seconds: Number = None
    tolerations: list[Toleration] | None = None
    volumes: Rows = None


class Condition(Shape):
    """One thing that is so, or is not."""

    type: str = ""
    status: Text = None
    reason: Text = None


class State(Shape):
    """What a container does at present."""

    waiting: Members = None
    running: Members = None
    terminated: Members = None


class ContainerStatus(Shape):
    """What became of a container."""

    state: State | None = None
    ready: bool | None = None
    restart_count: int = 0


class PodStatus(Shape):
    """What a kubelet says of a pod."""

    phase: Text = None
    reason: Text = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(Shape):
    """A pod."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Taint(Shape):
    """What keeps pods away from a node."""

    key: Text = None
    effect: Text = None


class NodeSpec(Shape):
    """What an administrator says of a node."""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class Address(Shape):
    """One address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Shape):
    """What a kubelet says of its node."""

    capacity: Amounts = None
    allocatable: Amounts = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None
    node_info: Members = None


class Node(Shape):
    """A node."""

    metadata: Metadata | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Data(Shape):
    """A config map or a secret."""

    metadata: Metadata | None = None
    data: Texts = None
    string_data: Texts = None
    type: Text = None


class Service(Shape):
    """A service."""

    class Spec(Shape):
        """What a service listens on."""

        ports: Rows = None

    metadata: Metadata | None = None
    spec: Spec | None = None


class Event(Shape):
    """Something that happened to an object, in the names of core v1."""

    metadata: Metadata | None = None
    involved_object: Texts = None
    source: Texts = None
    series: Members = None
    reporting_component: Text = None
    first_timestamp: Text = None
    last_timestamp: Text = None
    event_time: Text = None
    type: Text = None
    reason: Text = None
    message: Text = None


class Expression(Shape):
    """One rule of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Selector(Shape):
    """Which labels belong."""

    match_labels: Texts = None
    match_expressions: list[Expression] | None = None


class Template(Shape):
    """The pods a workload makes."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None


class WorkloadSpec(Shape):
    """What a workload wants."""

    replicas: Number = None
    parallelism: Number = None
    completions: Number = None
    backoff_limit: Number = None
    selector: Selector | None = None
    template: Template | None = None
    strategy: Members = None
    update_strategy: Members = None


class Workload(Shape):
    """A deployment, replica set, stateful set, daemon set or job."""

    metadata: Metadata | None = None
    spec: WorkloadSpec | None = None
    status: Members = None


class Lease(Shape):
    """A lease."""

    class Spec(Shape):
        """Who holds a lease, and how long."""

        holder_identity: Text = None
        lease_duration_seconds: Number = None

    metadata: Metadata | None = None
    spec: Spec | None = None


class PriorityClass(Shape):
    """A class of pods by importance."""

    metadata: Metadata | None = None
    value: Number = None
    global_default: bool | None = None


class Budget(Shape):
    """How many pods may be missing."""

    class Spec(Shape):
        """Which pods a budget is about."""

        selector: Selector | None = None

    class Status(Shape):
        """How many pods may go at present."""

        disruptions_allowed: int = 0

    metadata: Metadata | None = None
    spec: Spec | None = None
    status: Status | None = None


class Binding(Shape):
    """Which node a pod goes to."""

    metadata: Metadata | None = None
    target: Texts = None


class Eviction(Shape):
    """A pod that is asked to go."""

    metadata: Metadata | None = None
    delete_options: Members = None


class Deletion(Shape):
    """How an object is deleted."""

    class Preconditions(Shape):
        """Which object is meant."""

        uid: Text = None
        resource_version: Text = None

    grace_period_seconds: Number = None
    preconditions: Preconditions | None = None


SHAPES: dict[str, type[Shape]] = {
    "Binding": Binding,
    "ConfigMap": Data,
    "DaemonSet": Workload,
    "DeleteOptions": Deletion,
    "Deployment": Workload,
    "Event": Event,
    "Eviction": Eviction,
    "Job": Workload,
    "Lease": Lease,
    "Node": Node,
    "Pod": Pod,
    "PodDisruptionBudget": Budget,
    "PriorityClass": PriorityClass,
    "ReplicaSet": Workload,
    "Secret": Data,
    "Service": Service,
    "StatefulSet": Workload,
}


def check_shape(resource: ApiResource, item: Object) -> None:
    """Raise 400 when a field of an object has the wrong type."""
    check_kind(resource.kind, resource.version, item)


def check_kind(kind: str, version: str, item: Any) -> None:
    """Raise 400 when a field of a body of this kind has the wrong type."""
    try:
        msgspec.convert(item, SHAPES.get(kind, Anything))
    except msgspec.ValidationError as error:
        words = str(error).replace("`", "").replace("$.", "")
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: '
            f"json: cannot unmarshal: {words}"
        ) from error
