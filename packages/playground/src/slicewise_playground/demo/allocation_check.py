"""Whether every pod of a cluster was allocated what its system documents, from the API alone.

Nothing is taken from the extender's memory: pods and nodes are read as any agent would read them,
each pod's own record by its own dialect, and all of them are counted in a new ledger.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import msgspec

from slicewise.cluster import Ledger, NodeSeen, PodSeen, Problem
from slicewise.dialects import ALLOCATION, DEFAULT, GPUSCHEDULER, SLICEWISE
from slicewise.dialects.shared.signed_record import SIGNATURE, judge
from slicewise.kube.objects import KeyFilter, NodeBody, ObjectReader, PodBody
from slicewise.model import (
    Allocation,
    Node,
    NodeState,
    Pod,
    RecordTrust,
    Request,
    SlicewiseError,
    Snapshot,
)
from slicewise.placement import UNLIMITED, admitted_gpus

# These record nothing in annotations of their own.
_UNRECORDED: Final = (GPUSCHEDULER.name, SLICEWISE.name)


@dataclass(frozen=True, slots=True)
class CheckedPod:
    """One pod and what it was allocated; `broken` says what is wrong with it."""

    pod: Pod
    system: str
    allocation: Allocation | None = None
    broken: str = ""
    signer: str = ""
    """The key that signed its record."""


class AllocationCheck:
    """The pods and nodes of an API as they are now."""

    def __init__(
        self,
        nodes: Iterable[Mapping[str, Any]],
        pods: Iterable[Mapping[str, Any]],
        trust: RecordTrust | None = None,
    ) -> None:
        """Read objects as the API stores them, and check signatures where there are keys."""
        reader = ObjectReader(KeyFilter(DEFAULT.keys, DEFAULT.keys, DEFAULT.amounts))
        self.ledger = Ledger(DEFAULT, trust=trust)
        self._trust = trust
        self.nodes: dict[str, Node] = {}
        for item in nodes:
            notice = reader.read_node_notice(msgspec.convert(item, NodeBody))
            self.nodes[notice.name] = DEFAULT.read_node(notice)
            self.ledger.apply(NodeSeen(self.nodes[notice.name], notice.version))
        self.pods = [reader.read_pod(msgspec.convert(item, PodBody)) for item in pods]
        for pod in self.pods:
            self.ledger.apply(PodSeen(pod))

    @property
    def snapshot(self) -> Snapshot:
        """Every node with what is held of its GPUs."""
        return self.ledger.snapshot()

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the cluster: GPUs allocated twice, records that cannot be read."""
        return self.ledger.problems()

    def check_pod(self, pod: Pod) -> CheckedPod:
        """What a pod was allocated, compared with what its dialect documents."""
        try:
            return self._check_pod(pod)
        except SlicewiseError as error:
            return CheckedPod(pod, "", broken=str(error))

    def _check_pod(self, pod: Pod) -> CheckedPod:
        dialect = DEFAULT.claim(pod)
        if dialect is None:
            return CheckedPod(pod, "", broken="asks for no GPU")
        node = None if pod.node is None else self.nodes.get(pod.node)
        if node is None:
            return CheckedPod(pod, dialect.name, broken="is on no node")
        request = dialect.pods.read_request(pod)
        allocation = dialect.pods.read_allocation(pod, request, node)
        if allocation is None:
            # Where NVIDIA's own plugin serves the GPUs, the kubelet chooses and tells nobody.
            broken = "" if dialect.pods.records_nothing and not node.agent else "carries no record"
            return CheckedPod(pod, dialect.name, None, broken or _check_room(request, node))
        broken = _check_gpus(request, allocation, node)
        if not broken and dialect.name not in _UNRECORDED:
            bare = {key: text for key, text in pod.annotations.items() if key != ALLOCATION}
            own = dialect.pods.read_allocation(replace(pod, annotations=bare), request, node)
            broken = "" if own == allocation else "its system's own record says otherwise"
        if self._trust is None:
            return CheckedPod(pod, dialect.name, allocation, broken)
        verdict = judge(pod, node, self._trust)
        if verdict.signed is None:
            return CheckedPod(pod, dialect.name, allocation, broken or verdict.detail)
        if verdict.signed.allocation != allocation:
            broken = broken or "its signed record says otherwise"
        signer = pod.annotations[SIGNATURE].partition(".")[0]
        return CheckedPod(pod, dialect.name, allocation, broken, signer)


def _check_room(request: Request, node: Node) -> str:
    """What is wrong on a node on which the kubelet chooses whole GPUs."""
    wanted = sum(len(each.shares) for each in request.containers)
    gpus = admitted_gpus(NodeState.empty(node), request, UNLIMITED)
    return "" if len(gpus) >= wanted else f"node {node.name} lacks GPUs of the model"


def _check_gpus(request: Request, allocation: Allocation, node: Node) -> str:
    """What is wrong with an allocation: its amounts, its models or its links."""
    admitted = set(admitted_gpus(NodeState.empty(node), request, UNLIMITED))
    given = {each.name: each.slices for each in allocation.containers}
    for container in request.containers:
        pieces = given.get(container.name, ())
        if len(pieces) != len(container.shares):
            return f"{container.name} has {len(pieces)} of {len(container.shares)} GPUs"
        for share, piece in zip(container.shares, pieces, strict=True):
            if piece.cores < share.cores or piece.memory < share.memory:
                return f"{container.name} has less of gpu {piece.gpu} than it asked for"
            if node.position(piece.gpu) not in admitted:
                return f"{container.name} is on gpu {piece.gpu}, which it does not admit"
    wish = request.constraints.topology
    # A wish that is only preferred may be left unfulfilled.
    if wish is not None and wish.strict:
        gpus = [node.position(gpu) or 0 for gpu in allocation.gpus]
        if node.links is None or not all(
            node.links.nvlinks[one][other] for one, other in pairwise(gpus)
        ):
            return f"gpus {gpus} are not linked"
    return ""
