"""Which nodes a scheduler would ask an extender about, and why it leaves out the others.

It looks at a pod's demands on its node and at the sums of extended resources before it asks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from slicewise.cli.cluster_access import CannotTell, open_reader
from slicewise.cli.extender_client import ExtenderCall
from slicewise.dialects import DEFAULT
from slicewise.explain.scheduler_config import IGNORED
from slicewise.kube.affinity import read_node_requirements, rejection
from slicewise.kube.node_details import NodeDetails
from slicewise.kube.objects import PodBody
from slicewise.model import Pod, Quantity, SlicewiseError, phases, read_count

LeftOut = list[dict[str, str]]
_SHORT: Final = "insufficient "
_COUNTED: Final = tuple(sorted(DEFAULT.resources - IGNORED))


class SchedulerView:
    """Nodes as a scheduler sees them: labels, taints and what is left of each resource."""

    def __init__(self, machines: Sequence[NodeDetails], pods: Iterable[Pod]) -> None:
        self._machines = machines
        self._held: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node is not None and not pod.phase.terminal:
                self._held.setdefault(pod.node, Counter()).update(_sum_amounts(pod))

    def choose(self, spec: Mapping[str, Any], *, placed: bool = False) -> tuple[list[str], LeftOut]:
        """The nodes left by a pod's spec, and the others with their reasons.

        A pod that is placed has its node in the spec by the scheduler's hand, which demands
        nothing, and is counted there already.
        """
        home = spec.get("nodeName") if placed else None
        try:
            body = msgspec.convert({"metadata": {}, "spec": spec}, PodBody)
            wants = read_node_requirements({**spec, "nodeName": None} if placed else spec)
        except msgspec.ValidationError as error:
            raise CannotTell(f"pod spec: {error}") from error
        asked = _sum_amounts(open_reader().read_pod(body))
        reasons = {
            machine.name: rejection(wants, machine)
            or self._lack(machine, asked, own=machine.name == home)
            for machine in self._machines
        }
        names = [name for name, why in reasons.items() if why is None]
        return names, [{"node": name, "why": why} for name, why in reasons.items() if why]

    def _lack(self, machine: NodeDetails, asked: Counter[str], *, own: bool) -> str | None:
        for resource, count in asked.items():
            total = _read(machine.notice.allocatable.get(resource))
            if not total:
                return f"offers no {resource}"
            held = self._held.get(machine.name, Counter[str]())[resource] - (count if own else 0)
            if total - held < count:
                return f"{_SHORT}{resource}"
        return None


async def add_changes(
    ask: ExtenderCall, pod: Mapping[str, Any], told: dict[str, Any], left_out: LeftOut
) -> None:
    """Say as well what would fit on nodes whose sums fell short, if no other node is of help."""
    short = [each["node"] for each in left_out if each["why"].startswith(_SHORT)]
    if not short or told.get("best") or told.get("fits") or told.get("smallestChange"):
        return
    more = await ask("/explain", body={"Pod": pod, "NodeNames": short})
    told["nodes"] = [*told["nodes"], *(node for node in more["nodes"] if not node["fits"])]
    if "smallestChange" in more:
        told["smallestChange"] = more["smallestChange"]


def _sum_amounts(pod: Pod) -> Counter[str]:
    """What the pod asks for of every GPU resource, in the phase that peaks."""
    sums: Counter[str] = Counter()
    for resource in _COUNTED:
        each = [
            _read(container.requests.get(resource, container.limits.get(resource)))
            for container in pod.containers
        ]
        if any(each):
            sums[resource] = max(sum(each[at] for at in phase) for phase in phases(pod.containers))
    return sums


def _read(value: Quantity | None) -> int:
    try:
        return 0 if value is None else read_count("", value)
    except SlicewiseError:
        return 0
