"""What a new node of each of an autoscaler's groups would take of the pods that wait.

Autoscalers count resources; whether a pod fits on the GPUs of a node is told here, and whether it
needs a new node at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from slicewise.cluster import Ledger, NodeSeen
from slicewise.dialects import DEFAULT
from slicewise.explain.candidates import HeldAmounts
from slicewise.explain.manifests import ManifestError
from slicewise.explain.pod_query import PodQuery
from slicewise.kube.affinity import read_node_requirements, rejection
from slicewise.kube.node_details import NodeDetailsBody, read_node_details
from slicewise.kube.objects import ObjectReader
from slicewise.model import Holding, Node, NodeDetails, Snapshot, charge
from slicewise.placement import Planner
from slicewise.placement.defrag import DefragOutcome, SearchLimits
from slicewise.state.defrag.defrag_view import DefragView


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group by the Node that stands for each of its machines, with nothing on it."""

    details: NodeDetails
    node: Node

    @property
    def name(self) -> str:
        return self.details.name


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits: whether it fits now, or after moves, or neither."""

    query: PodQuery
    spec: Mapping[str, Any]
    outcome: DefragOutcome

    @property
    def name(self) -> str:
        return f"{self.query.pod.namespace}/{self.query.pod.name}"

    @property
    def moves(self) -> int | None:
        """How many moves make room for it, 0 where it fits now; None where none do."""
        return None if self.outcome.plan is None else len(self.outcome.plan.moves)


def read_groups(reader: ObjectReader, documents: Iterable[Mapping[str, Any]]) -> list[NodeGroup]:
    """The groups that Node manifests describe; raises ManifestError where they do not."""
    found = []
    for each in documents:
        if each.get("kind") != "Node":
            raise ManifestError(f"kind {each.get('kind')!r}: expected Nodes, one for each group")
        try:
            body = msgspec.convert(each, NodeDetailsBody)
        except msgspec.ValidationError as error:
            raise ManifestError(f"node: {error}") from error
        if not body.metadata.name:
            raise ManifestError("node without metadata.name: expected the group's name")
        details = read_node_details(body, reader)
        # A machine that is not there yet is ready and open when it comes.
        details = replace(details, ready=True, unschedulable=False)
        found.append(NodeGroup(details, DEFAULT.read_node(details.notice)))
    return found


def sort_pending(view: DefragView, limits: SearchLimits) -> list[PendingPod]:
    """Every pod that waits, with what it needs; each is looked at as if it were the only one."""
    found = []
    for pod in view.waiting():
        query = view.ask(pod)
        outcome = view.plan(query, limits)
        found.append(PendingPod(query, view.reading.pods[pod.uid].spec, outcome))
    return found


def fill_group(group: NodeGroup, pods: Sequence[PendingPod]) -> list[list[str]]:
    """The pods that new nodes of the group take, node by node, the first pod first."""
    bought: list[_NewNode] = []
    for pod in pods:
        if not group_admits(group, pod):
            continue
        if not any(each.take(pod) for each in bought):
            fresh = _NewNode(group)
            if fresh.take(pod):
                bought.append(fresh)
    return [each.taken for each in bought]


def describe_groups(groups: Sequence[NodeGroup], pods: Sequence[PendingPod]) -> dict[str, Any]:
    """The answer as JSON; only pods that neither fit now nor after moves are given new nodes."""
    needing = [pod for pod in pods if pod.moves is None]
    filled = {group.name: fill_group(group, needing) for group in groups}
    takers = {
        pod.name: [
            name for name, nodes in filled.items() if any(pod.name in each for each in nodes)
        ]
        for pod in needing
    }
    return {
        "groups": [
            {"group": name, "nodes": len(nodes), "pods": nodes} for name, nodes in filled.items()
        ],
        "pods": [
            {
                "pod": pod.name,
                "asks": pod.query.asks,
                "needs": "node" if pod.moves is None else "moves" if pod.moves else "nothing",
                **({"moves": pod.moves} if pod.moves else {}),
                **({"groups": takers[pod.name]} if pod.moves is None else {}),
            }
            for pod in pods
        ],
        "fits": all(takers.values()),
    }


def group_admits(group: NodeGroup, pod: PendingPod) -> bool:
    """Whether a scheduler would ask about an empty node of the group."""
    required = read_node_requirements(pod.spec)
    if rejection(required, group.details) is not None:
        return False
    held = HeldAmounts(())
    return held.find_shortage(group.details.notice, pod.query.pod, counted=False) is None


class _NewNode:
    """One empty node of a group, filled pod by pod."""

    def __init__(self, group: NodeGroup) -> None:
        ledger = Ledger(DEFAULT)
        ledger.apply(NodeSeen(group.node))
        self._name = group.name
        self._snapshot: Snapshot = ledger.snapshot()
        self.taken: list[str] = []

    def take(self, pod: PendingPod) -> bool:
        query = pod.query
        planner = Planner(query.planner.policy, query.planner.workload)
        wanted = replace(query.wanted, nodes=(self._name,))
        placement = planner.place_on(self._snapshot, wanted, self._name)
        state = self._snapshot.get(self._name)
        if placement is None or state is None:
            return False
        request = wanted.on(state.node).request
        charges = charge(request, placement.allocation)
        held = Holding(query.pod.uid, "", pod.name, charges, request.host)
        self._snapshot = self._snapshot.hold(self._name, held)
        self.taken.append(pod.name)
        return True
