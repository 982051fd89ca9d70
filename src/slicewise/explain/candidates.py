"""Which nodes a scheduler would ask an extender about, and why it leaves out the others.

It looks at a pod's demands on its node and at the sums of extended resources before it asks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from slicewise.dialects import DEFAULT
from slicewise.model import NodeNotice, Pod, find_count, phases

LeftOut = list[dict[str, str]]
INSUFFICIENT: Final = "insufficient "
_COUNTED: Final = tuple(sorted(DEFAULT.resources - DEFAULT.uncounted))


class HeldAmounts:
    """What the pods of each node hold of every GPU resource, as a scheduler adds it up."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._held: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node is not None and not pod.phase.terminal:
                self._held.setdefault(pod.node, Counter()).update(_sum_amounts(pod))

    def find_shortage(self, node: NodeNotice, pod: Pod, *, counted: bool) -> str | None:
        """What the node has too little of for the pod, which may be counted there already."""
        for resource, count in _sum_amounts(pod).items():
            total = find_count(node.allocatable.get(resource)) or 0
            if not total:
                return f"offers no {resource}"
            held = self._held.get(node.name, Counter[str]())[resource] - (count if counted else 0)
            if total - held < count:
                return f"{INSUFFICIENT}{resource}"
        return None


def split_nodes(reasons: Mapping[str, str | None]) -> tuple[list[str], LeftOut]:
    """The nodes that nothing speaks against, and the others with their reasons."""
    names = [name for name, why in reasons.items() if why is None]
    return names, [{"node": name, "why": why} for name, why in reasons.items() if why]


def name_short_nodes(left_out: LeftOut) -> list[str]:
    """The nodes that were left out because their sums fell short."""
    return [each["node"] for each in left_out if each["why"].startswith(INSUFFICIENT)]


def _sum_amounts(pod: Pod) -> Counter[str]:
    """What the pod asks for of every GPU resource, in the phase that peaks."""
    sums: Counter[str] = Counter()
    for resource in _COUNTED:
        each = [
            find_count(container.requests.get(resource, container.limits.get(resource))) or 0
            for container in pod.containers
        ]
        if any(each):
            sums[resource] = max(sum(each[at] for at in phase) for phase in phases(pod.containers))
    return sums
