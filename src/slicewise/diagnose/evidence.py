"""What each of the four views says of a node, as the audit compares them."""

from collections.abc import Iterator
from dataclasses import dataclass

from slicewise.kubelet.holders import Holder
from slicewise.model import Gpu, Role
from slicewise.nodeagent.node_pods import NodePod
from slicewise.nodeagent.usage.node_usage import NodeUsage


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One CDI spec of ours: for which container of which pod, and the GPUs it hands over.

    `gpus` is None where a spec hands over no GPU. `trouble` says why the file cannot be read;
    then nothing else is known of it.
    """

    name: str
    pod: str = ""
    container: str = ""
    gpus: frozenset[str] | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What each view says; `holders` and `specs` are None where nobody answered or none is kept.

    `resources` are the names whose units are ours to account for, `served` those whose containers
    are described by specs. `departed` are pods that left a moment ago: what they left is not yet
    due to be removed.
    """

    usage: NodeUsage
    pods: tuple[NodePod, ...]
    holders: tuple[Holder, ...] | None
    specs: tuple[SpecFile, ...] | None
    resources: frozenset[str]
    served: frozenset[str]
    departed: frozenset[str] = frozenset()
    gaps: tuple[str, ...] = ()


def walk_holding(evidence: Evidence) -> Iterator[tuple[NodePod, str]]:
    """The running containers that hold GPUs; of init containers the kubelet does not tell."""
    for pod in evidence.pods:
        for container in pod.living:
            told = container.running and container.role is not Role.INIT
            if told and pod.held(container.name):
                yield pod, container.name


def name_gpu(gpu: Gpu) -> str:
    """The GPU as people look for it."""
    return f"gpu {gpu.index} ({gpu.uuid})"
