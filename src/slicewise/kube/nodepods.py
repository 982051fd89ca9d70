"""The pods of one node with what only its agent looks at: containers that run, and who they are."""

from dataclasses import dataclass
from typing import Final

import msgspec

from slicewise.kube.objects import (
    ContainerBody,
    Metadata,
    ObjectReader,
    PodBody,
    PodSpec,
    PodStatus,
)
from slicewise.kube.watch import Source
from slicewise.model import Pod

_MIRROR: Final = "kubernetes.io/config.hash"
_CLUSTER: Final = "clusterName"


class EnvBody(msgspec.Struct, gc=False):
    """An environment variable with a plain value."""

    name: str = ""
    value: str = ""


class AgentContainerBody(ContainerBody, rename="camel", gc=False):
    """A container with its environment."""

    env: list[EnvBody] | None = None


class AgentPodSpec(PodSpec, rename="camel", gc=False):
    """The spec of a pod with its containers' environment."""

    containers: list[AgentContainerBody] = []  # type: ignore[assignment]  # noqa: RUF012


class TerminatedBody(msgspec.Struct, rename="camel", gc=False):
    """How a container ended."""

    exit_code: int = 0


class StateBody(msgspec.Struct, gc=False):
    """Where a container is in its life."""

    running: dict[str, str] | None = None
    terminated: TerminatedBody | None = None


class ContainerStatusBody(msgspec.Struct, rename="camel", gc=False):
    """What the kubelet says of a container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: StateBody | None = None


class AgentPodStatus(PodStatus, rename="camel", gc=False):
    """The status of a pod with its containers'."""

    container_statuses: list[ContainerStatusBody] | None = None
    init_container_statuses: list[ContainerStatusBody] | None = None


class AgentPodBody(PodBody, gc=False):
    """A pod as its node's agent reads it."""

    spec: AgentPodSpec = msgspec.field(default_factory=AgentPodSpec)
    status: AgentPodStatus = msgspec.field(default_factory=AgentPodStatus)


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as the kubelet last told of it; the id has no runtime before it."""

    name: str
    id: str | None = None
    running: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod, its containers' states, and words of its environment that other systems read."""

    pod: Pod
    states: tuple[ContainerState, ...] = ()
    submitter: str = ""
    cluster: str = ""
    cgroup: str | None = None
    compat32: frozenset[str] = frozenset()

    def state(self, container: str) -> ContainerState | None:
        """The state of one container; None before the kubelet told of it."""
        return next((each for each in self.states if each.name == container), None)


def read_node_pod(body: AgentPodBody, reader: ObjectReader) -> NodePod:
    """The pod with what its node's agent looks at."""
    annotations = body.metadata.annotations or {}
    containers = body.spec.containers
    statuses = (*(body.status.init_container_statuses or ()),
                *(body.status.container_statuses or ()))  # fmt: skip
    return NodePod(
        reader.read_pod(body),
        tuple(map(_read_state, statuses)),
        submitter=_find_env(containers[0], "SUBMITTER") if containers else "",
        cluster=annotations.get(_CLUSTER, ""),
        cgroup=annotations.get(_MIRROR),
        compat32=frozenset(
            each.name for each in containers if _find_env(each, "compat32").lower() == "true"
        ),
    )


def node_pods(reader: ObjectReader, node: str) -> Source[AgentPodBody, NodePod]:
    """The pods bound to one node, those that have ended included until they are deleted."""
    return Source(
        resource="pods",
        path="/api/v1/pods",
        body=AgentPodBody,
        read=lambda body: read_node_pod(body, reader),
        key=_uid,
        query={"fieldSelector": f"spec.nodeName={node}"},
    )


def _read_state(body: ContainerStatusBody) -> ContainerState:
    state = body.state or StateBody()
    return ContainerState(
        body.name,
        body.container_id.rpartition("//")[2] or None,
        running=state.running is not None,
        exit_code=None if state.terminated is None else state.terminated.exit_code,
    )


def _find_env(container: AgentContainerBody, name: str) -> str:
    return next((each.value for each in container.env or () if each.name == name), "")


def _uid(metadata: Metadata) -> str:
    return metadata.uid
