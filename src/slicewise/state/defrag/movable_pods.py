"""Which pods may be evicted so that another fits, and why the others may not.

Only what a controller makes again is moved, within its disruption budgets, and nothing whose place
depends on more than nodes and GPUs: volumes, claims and other pods are not simulated.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from slicewise.kube.eviction.evictions import DisruptionBudget
from slicewise.kube.eviction.pod_facts import PodFacts

FORBIDDING: Final[Mapping[str, str]] = {
    "slicewise.io/movable": "false",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations that forbid a move, each with its value."""
# A successor of theirs comes to the very same node.
_BOUND_KINDS: Final = frozenset({"DaemonSet", "Node"})


class Budgets:
    """Disruption budgets, asked about one pod."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[DisruptionBudget]] = {}
        for each in budgets:
            self._by_namespace.setdefault(each.metadata.namespace, []).append(each)

    def covering(self, pod: PodFacts) -> Sequence[DisruptionBudget]:
        """The budgets that protect the pod."""
        return [
            each for each in self._by_namespace.get(pod.namespace, ()) if each.covers(pod.labels)
        ]


def find_obstacle(pod: PodFacts, budgets: Budgets, *, planned: bool = False) -> str | None:
    """Why the pod may not be moved; None when it may.

    Of a pod that is planned to move its budget decides at its eviction: right after another move
    it may not know yet that the new pod is ready.
    """
    if not pod.owner:
        return "has no controller"
    if pod.owner_kind in _BOUND_KINDS:
        return f"belongs to a {pod.owner_kind}"
    for key, value in FORBIDDING.items():
        if pod.annotations.get(key) == value:
            return f"has the annotation {key}: {value}"
    if pod.deleting:
        return "is leaving already"
    if pod.bound_elsewhere is not None:
        return pod.bound_elsewhere
    covering = budgets.covering(pod)
    if len(covering) > 1:
        # The Eviction API refuses such pods always.
        return "has more than one disruption budget"
    if not planned and any(each.status.disruptions_allowed < 1 for each in covering):
        return "has a disruption budget that allows no eviction now"
    return None
