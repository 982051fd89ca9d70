"""The resources the embedded API serves: one row each, and discovery is read from the rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource of one group and version."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    generations: bool = False
    """Whether metadata.generation counts changes of the spec."""
    status_on_create: bool = False
    """Whether the creator may set the status."""
    blind_update: bool = True
    """Whether an update may leave out metadata.resourceVersion."""
    create_on_update: bool = False
    """Whether an update of an absent object creates it."""
    storage: str = ""
    """The collection that holds the objects; empty means its own."""

    @property
    def qualified(self) -> str:
        """The name that error messages use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> str:
        """The key of the collection that holds the objects."""
        return self.storage or self.qualified

    @property
    def singular(self) -> str:
        """The name of one of them."""
        return self.kind.lower()


def _apps(plural: str, kind: str, *short: str, scale: bool = True) -> ApiResource:
    """A workload of the apps group."""
    return ApiResource(
        plural,
        kind,
        "apps",
        short_names=short,
        categories=("all",),
        subresources=("status", "scale") if scale else ("status",),
        generations=True,
    )


def _stored(group: str, *names: str, namespaced: bool = True) -> tuple[ApiResource, ...]:
    """Resources that are stored as they come, given as `plural:Kind:short`."""
    rows = [name.split(":") for name in names]
    return tuple(
        ApiResource(plural, kind, group, namespaced=namespaced, short_names=tuple(short))
        for plural, kind, *short in rows
    )


RESOURCES: tuple[ApiResource, ...] = (
    ApiResource(
        "namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("status",)
    ),
    ApiResource(
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=("status",),
        status_on_create=True,
    ),
    ApiResource(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction", "log"),
        generations=True,
    ),
    ApiResource("bindings", "Binding", verbs=CREATE_ONLY),
    ApiResource("events", "Event", short_names=("ev",), create_on_update=True),
    ApiResource("configmaps", "ConfigMap", short_names=("cm",)),
    ApiResource("secrets", "Secret"),
    ApiResource("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    ApiResource(
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=("status",),
    ),
    ApiResource("endpoints", "Endpoints", short_names=("ep",)),
    _apps("deployments", "Deployment", "deploy"),
    _apps("replicasets", "ReplicaSet", "rs"),
    _apps("statefulsets", "StatefulSet", "sts"),
    _apps("daemonsets", "DaemonSet", "ds", scale=False),
    ApiResource(
        "jobs", "Job", "batch", categories=("all",), subresources=("status",), generations=True
    ),
    ApiResource(
        "leases", "Lease", "coordination.k8s.io", blind_update=False, create_on_update=True
    ),
    ApiResource(
        "events",
        "Event",
        "events.k8s.io",
        short_names=("ev",),
        create_on_update=True,
        storage="events",
    ),
    ApiResource(
        "priorityclasses",
        "PriorityClass",
        "scheduling.k8s.io",
        namespaced=False,
        short_names=("pc",),
        generations=True,
    ),
    ApiResource(
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "policy",
        short_names=("pdb",),
        subresources=("status",),
        generations=True,
    ),
    ApiResource(
        "tokenreviews", "TokenReview", "authentication.k8s.io", namespaced=False, verbs=CREATE_ONLY
    ),
    ApiResource(
        "subjectaccessreviews",
        "SubjectAccessReview",
        "authorization.k8s.io",
        namespaced=False,
        verbs=CREATE_ONLY,
    ),
    ApiResource(
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        "authorization.k8s.io",
        namespaced=False,
        verbs=CREATE_ONLY,
    ),
    *_stored(
        "",
        "limitranges:LimitRange:limits",
        "persistentvolumeclaims:PersistentVolumeClaim:pvc",
        "replicationcontrollers:ReplicationController:rc",
        "resourcequotas:ResourceQuota:quota",
    ),
    *_stored("", "persistentvolumes:PersistentVolume:pv", namespaced=False),
    *_stored(
        "storage.k8s.io",
        "csidrivers:CSIDriver",
        "csinodes:CSINode",
        "storageclasses:StorageClass:sc",
        "volumeattachments:VolumeAttachment",
        namespaced=False,
    ),
    *_stored("storage.k8s.io", "csistoragecapacities:CSIStorageCapacity"),
    *_stored(
        "resource.k8s.io",
        "resourceclaims:ResourceClaim",
        "resourceclaimtemplates:ResourceClaimTemplate",
    ),
    *_stored(
        "resource.k8s.io",
        "deviceclasses:DeviceClass",
        "resourceslices:ResourceSlice",
        namespaced=False,
    ),
    *_stored("rbac.authorization.k8s.io", "roles:Role", "rolebindings:RoleBinding"),
    *_stored(
        "rbac.authorization.k8s.io",
        "clusterroles:ClusterRole",
        "clusterrolebindings:ClusterRoleBinding",
        namespaced=False,
    ),
    *_stored("discovery.k8s.io", "endpointslices:EndpointSlice"),
    *_stored("apiregistration.k8s.io", "apiservices:APIService", namespaced=False),
)

BY_NAME = {resource.qualified: resource for resource in RESOURCES}
BY_PATH = {(row.group, row.version, row.plural): row for row in RESOURCES}


def find(name: str) -> ApiResource:
    """The resource called `pods`, `leases.coordination.k8s.io` or, when unique, `leases`."""
    if name in BY_NAME:
        return BY_NAME[name]
    matches = [resource for resource in RESOURCES if resource.plural == name]
    if len(matches) != 1:
        raise KeyError(f"resource {name!r}: expected one of {', '.join(sorted(BY_NAME))}")
    return matches[0]


def groups(resources: Iterable[ApiResource] = RESOURCES) -> dict[str, list[ApiResource]]:
    """The resources by group and version, in the order of the table."""
    found: dict[str, list[ApiResource]] = {}
    for resource in resources:
        found.setdefault(resource.group_version, []).append(resource)
    return found
