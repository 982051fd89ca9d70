"""The pods of one node, with what only its agent looks at: container ids and states.

The rest of the cluster never decodes these fields.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from slicewise.kube.client import Call, Client
from slicewise.kube.objects import (
    ContainerBody,
    ObjectReader,
    PodBody,
    PodSpec,
    PodStatus,
    ResourcesBody,
)
from slicewise.kube.reads import read_one
from slicewise.kube.sources import LIVE_PODS, by_uid
from slicewise.kube.watch import WatchSource
from slicewise.model import Pod, Role

_MIRROR: Final = "kubernetes.io/config.mirror"
_HASH: Final = "kubernetes.io/config.hash"
_HASHED: Final = re.compile(r"[0-9a-f]{32}")
_CLUSTER: Final = "clusterName"
_SUBMITTER: Final = "SUBMITTER"
_COMPAT: Final = "compat32"
_ALWAYS: Final = "Always"


class Variable(msgspec.Struct, gc=False):
    """An environment variable that is written out."""

    name: str = ""
    value: str = ""


class UsedClaim(msgspec.Struct, gc=False):
    """A claim that a container uses by the pod's own name for it; without a request, all of it."""

    name: str = ""
    request: str = ""


class LocalResources(ResourcesBody, gc=False):
    claims: list[UsedClaim] | None = None


class LocalContainerBody(ContainerBody, gc=False):
    resources: LocalResources | None = None
    env: list[Variable] | None = None


class PodClaimBody(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    resource_claim_name: str | None = None


class LocalSpec(PodSpec, rename="camel", gc=False):
    """The spec with what decides whether a container starts again, and its claims."""

    containers: Sequence[LocalContainerBody] = []
    init_containers: Sequence[LocalContainerBody] | None = None
    restart_policy: str = _ALWAYS
    resource_claims: list[PodClaimBody] | None = None


class Terminated(msgspec.Struct, rename="camel", gc=False):
    exit_code: int = 0


class StateBody(msgspec.Struct, gc=False):
    """What a container is doing; with none of these it waits."""

    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatusBody(msgspec.Struct, gc=False):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: StateBody | None = None


class LocalStatus(PodStatus, rename="camel", gc=False):
    container_statuses: list[ContainerStatusBody] | None = None
    init_container_statuses: list[ContainerStatusBody] | None = None
    ephemeral_container_statuses: list[ContainerStatusBody] | None = None


class LocalPodBody(PodBody, gc=False):
    spec: LocalSpec = msgspec.field(default_factory=LocalSpec)
    status: LocalStatus = msgspec.field(default_factory=LocalStatus)


@dataclass(frozen=True, slots=True)
class LocalContainer:
    """One container: its id without the runtime's name, and how far its life has come.

    `ended` says that it will not start again, though its pod may go on. One that neither runs nor
    has `stopped` may run already: the kubelet tells of it only when its postStart hook is through.
    """

    name: str
    role: Role = Role.MAIN
    id: str | None = None
    running: bool = False
    ended: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class LocalPod:
    """A pod of this node; `cgroup` is the UID in its cgroups where that is not the pod's own."""

    pod: Pod
    containers: tuple[LocalContainer, ...] = ()
    cgroup: str | None = None
    user: str = ""
    cluster: str = ""
    compat32: frozenset[str] = frozenset()
    """The containers that ask for gpu-manager's 32-bit libraries."""
    claims: tuple[str, ...] = ()
    """The ResourceClaims it was given, by name."""
    uses: tuple[tuple[str, str, str], ...] = ()
    """Which container uses which request of which claim; an empty request is all of them."""


def local_pods(reader: ObjectReader, node: str) -> WatchSource[LocalPodBody, LocalPod]:
    """The pods bound to a node that have not ended."""
    return WatchSource(
        resource="pods",
        kind="Pod",
        path="/api/v1/pods",
        body=LocalPodBody,
        read=partial(read_local_pod, reader),
        key=by_uid,
        query={"fieldSelector": f"spec.nodeName={node},{LIVE_PODS}"},
    )


async def find_local_pod(
    client: Client, reader: ObjectReader, namespace: str, name: str
) -> LocalPod | None:
    """The pod of this name as the API server has it now, if there is one."""
    call = Call("get", "pods", f"/api/v1/namespaces/{namespace}/pods/{name}")
    body = await read_one(client, call, LocalPodBody)
    return None if body is None else read_local_pod(reader, body)


def read_local_pod(reader: ObjectReader, body: LocalPodBody) -> LocalPod:
    """The pod with its containers, init containers first and those for debugging last."""
    pod, status = reader.read_pod(body), body.status
    told = {
        each.name: each
        for statuses in (status.init_container_statuses, status.container_statuses)
        for each in statuses or ()
    }
    listed = [(each.name, each.role, told.get(each.name)) for each in pod.containers]
    listed += [(each.name, Role.MAIN, each) for each in status.ephemeral_container_statuses or ()]
    annotations = body.metadata.annotations or {}
    first = body.spec.containers[0].env if body.spec.containers else None
    return LocalPod(
        pod,
        tuple(_read_container(*each, policy=body.spec.restart_policy) for each in listed),
        _read_cgroup(annotations),
        next((each.value for each in first or () if each.name == _SUBMITTER), ""),
        annotations.get(_CLUSTER, ""),
        frozenset(each.name for each in body.spec.containers if _wants_compat(each)),
        _read_claims(body.spec, status),
        tuple(_read_uses(body.spec, status)),
    )


def _name_claims(spec: LocalSpec, status: LocalStatus) -> dict[str, str]:
    """The claims behind the pod's own names for them."""
    listed = (*(spec.resource_claims or ()), *(status.resource_claim_statuses or ()))
    return {each.name: each.resource_claim_name for each in listed if each.resource_claim_name}


def _read_claims(spec: LocalSpec, status: LocalStatus) -> tuple[str, ...]:
    extended = status.extended_resource_claim_status
    named = "" if extended is None else extended.resource_claim_name or ""
    return tuple(name for name in (*_name_claims(spec, status).values(), named) if name)


def _read_uses(spec: LocalSpec, status: LocalStatus) -> Iterator[tuple[str, str, str]]:
    names = _name_claims(spec, status)
    for container in (*(spec.init_containers or ()), *spec.containers):
        used = () if container.resources is None else container.resources.claims or ()
        for each in used:
            if each.name in names:
                yield container.name, names[each.name], each.request
    extended = status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        for mapping in extended.request_mappings or ():
            yield mapping.container_name, extended.resource_claim_name, mapping.request_name


def _wants_compat(container: LocalContainerBody) -> bool:
    return any(
        each.name == _COMPAT and each.value.lower() == "true" for each in container.env or ()
    )


def _read_container(
    name: str, role: Role, status: ContainerStatusBody | None, *, policy: str
) -> LocalContainer:
    if status is None:
        return LocalContainer(name, role)
    state = status.state or StateBody()
    bare = status.container_id.rpartition("://")[2] or None
    return LocalContainer(
        name,
        role,
        bare,
        state.running is not None,
        _has_ended(role, state.terminated, policy),
        state.terminated is not None,
    )


def _has_ended(role: Role, terminated: Terminated | None, policy: str) -> bool:
    if terminated is None or role is Role.SIDECAR:
        return False
    if role is Role.MAIN and policy == _ALWAYS:
        return False
    return policy == "Never" or terminated.exit_code == 0


def _read_cgroup(annotations: dict[str, str]) -> str | None:
    # Anybody may annotate a pod; the form of a hash keeps it from passing for another's UID.
    text = annotations.get(_HASH, "")
    return text if _MIRROR in annotations and _HASHED.fullmatch(text) else None
