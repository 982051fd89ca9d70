"""Adoption: GPUs for pods that others bound and whose system names none.

They are chosen only when somebody looks at the ledger, so that a whole list of pods comes in
first: those that name their GPUs are counted before the others get what is left. A choice is kept
while it fits, so that GPUs change hands only when they must; one that is being recorded on its
pod is kept in any case.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slicewise.cluster.charges import charge_everywhere
from slicewise.cluster.entry import PodEntry, problem_of
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.problems import ProblemKind
from slicewise.model import (
    Allocation,
    Holding,
    Host,
    Node,
    NodeState,
    Pod,
    Request,
    Snapshot,
    charge,
)
from slicewise.placement import UNLIMITED, PlacementRequest, Planner, admitted_gpus, explain

UNNAMED: Final = "no record says which GPUs it has"
_CACHED: Final = 4096
ChooseGpus = Callable[[NodeState, "UnassignedPod"], Allocation | None]
"""Which GPUs of a node an unassigned pod gets of what is free there; None when too few are."""


@dataclass(frozen=True, slots=True)
class UnassignedPod:
    """A pod on a node that must have GPUs there, and those chosen for it so far."""

    uid: str
    request: Request
    chosen: Allocation | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class AdoptedPod:
    """A bound pod that names no GPUs, and the GPUs of its node chosen for it.

    It has no allocation where too few are free; `detail` says so then.
    """

    pod: Pod
    request: Request
    node: Node
    allocation: Allocation | None
    pinned: bool
    detail: str = ""


class GpuChooser:
    """Chooses the GPUs the engine would, whatever else the pod asks of its host."""

    def __init__(self, planner: Planner | None = None) -> None:
        self.planner = Planner() if planner is None else planner
        self._workload = self.planner.workload
        self._cache: dict[Hashable, Allocation | None] = {}

    def __call__(self, state: NodeState, unassigned: UnassignedPod) -> Allocation | None:
        if self._workload is not self.planner.workload or len(self._cache) > _CACHED:
            self._workload = self.planner.workload
            self._cache.clear()
        # Clusters have few kinds of nodes, and a take-over asks for all of them at once.
        node, request = state.node, replace(unassigned.request, host=Host())
        like = (_gpus_of(node), node.links, state.used_cores, state.used_memory)
        key = (like, request, unassigned.uid if "random" in self.planner.policy.name else "")
        if key not in self._cache:
            wanted = PlacementRequest(request, salt=unassigned.uid)
            self._cache[key] = self._place(state, wanted)
        found = self._cache[key]
        return None if found is None else replace(found, node=node.name)

    def _place(self, state: NodeState, wanted: PlacementRequest) -> Allocation | None:
        # The pod is there already: what CPU and memory are left decides nothing any more.
        state = replace(state, cpu=0, host_memory=0)
        alone = Snapshot(((state,),), {state.node.name: 0})
        placement = self.planner.place_on(alone, wanted, state.node.name)
        return None if placement is None else placement.allocation


class Adoption:
    """Assigns GPUs to the pods that the index lists as unassigned."""

    def __init__(
        self, holdings: HoldingIndex, entries: Mapping[str, PodEntry], choose: ChooseGpus
    ) -> None:
        self._holdings = holdings
        self._entries = entries
        self._choose = choose

    def assign_dirty(self) -> None:
        """Assign GPUs on every node where something changed."""
        dirty, unassigned = self._holdings.dirty, self._holdings.unassigned
        while dirty:
            name = dirty.pop()
            uids, rest = sorted(unassigned.get(name, ())), self._holdings.store.get(name)
            if rest is None:
                self._forget(uids)
                continue
            pods = []
            for uid in uids:
                rest, entry = rest.release(uid), self._entries[uid]
                assert entry.request is not None
                pods.append(UnassignedPod(uid, entry.request, entry.chosen, entry.pinned))
            found = assign_all(rest, pods, self._choose)
            for uid in sorted(uids, key=lambda uid: found[uid] is None):
                rest = self._charge(self._entries[uid], rest, found[uid])
            # What was just charged is no reason to look again.
            dirty.discard(name)

    def listed(self) -> tuple[AdoptedPod, ...]:
        uids = sorted(uid for uids in self._holdings.unassigned.values() for uid in uids)
        return tuple(adopted for uid in uids if (adopted := self.find(uid)) is not None)

    def find(self, uid: str) -> AdoptedPod | None:
        """This pod with its GPUs, if those are ours to choose and its node is known."""
        self.assign_dirty()
        entry = self._entries.get(uid)
        if entry is None or entry.node is None or entry.pod is None or entry.request is None:
            return None
        state = self._holdings.store.get(entry.node)
        if state is None or uid not in self._holdings.unassigned.get(entry.node, ()):
            return None
        detail = "" if entry.problem is None else entry.problem.detail
        return AdoptedPod(entry.pod, entry.request, state.node, entry.chosen, entry.pinned, detail)

    def _forget(self, uids: list[str]) -> None:
        for uid in uids:
            entry = self._entries[uid]
            entry.chosen, entry.pinned, entry.problem = None, False, None

    def _charge(self, entry: PodEntry, rest: NodeState, allocation: Allocation | None) -> NodeState:
        """Charge a pod its allocation, or every GPU of its node if too little was free.

        The node is returned with the allocation on it, so that the next can tell what is missing.
        """
        pod, request, entry.chosen = entry.pod, entry.request, allocation
        assert pod is not None
        assert request is not None
        if allocation is not None:
            entry.problem = None
            charges = charge(request, allocation)
            self._holdings.hold(entry, charges, request.host)
            return rest.hold(Holding(entry.uid, pod.namespace, pod.name, charges))
        refusal = explain(rest, request, UNLIMITED)
        entry.problem = problem_of(pod, ProblemKind.MISSING_ALLOCATION, f"{UNNAMED}; {refusal}")
        everywhere = charge_everywhere(request, rest.node)
        self._holdings.hold(entry, everywhere, request.host, certain=False)
        return rest


def assign_all(
    state: NodeState, pods: Iterable[UnassignedPod], choose: ChooseGpus
) -> dict[str, Allocation | None]:
    """The GPUs of every unassigned pod on a node that holds the other pods alone."""
    kept_first = sorted(pods, key=lambda each: (not each.pinned, each.chosen is None, each.uid))
    found = _assign(state, kept_first, choose)
    if None not in found.values():
        return found
    # Whoever takes any GPU may have taken the one that another needs: the choosiest go first.
    again = [each if each.pinned else replace(each, chosen=None) for each in kept_first]
    again.sort(key=lambda each: (not each.pinned, _options(state, each), each.uid))
    moved = _assign(state, again, choose)
    return moved if _left_out(moved) < _left_out(found) else found


def _assign(
    state: NodeState, pods: Sequence[UnassignedPod], choose: ChooseGpus
) -> dict[str, Allocation | None]:
    found: dict[str, Allocation | None] = {}
    for pod in pods:
        allocation = pod.chosen if _keeps(state, pod) else choose(state, pod)
        found[pod.uid] = allocation
        if allocation is not None:
            charges = charge(pod.request, allocation)
            state = state.hold(Holding(pod.uid, "", "", charges))
    return found


def _keeps(state: NodeState, pod: UnassignedPod) -> bool:
    chosen = pod.chosen
    if chosen is None or chosen.node != state.node.name:
        return False
    # An unhealthy GPU keeps the pod that runs on it.
    return pod.pinned or all(map(state.has_room, charge(pod.request, chosen)))


def _gpus_of(node: Node) -> Hashable:
    """All of a node's GPUs that decides which are chosen; such pods name no UUIDs."""
    return tuple((gpu.index, gpu.model, gpu.memory, gpu.usable, gpu.numa) for gpu in node.gpus)


def _options(state: NodeState, pod: UnassignedPod) -> int:
    return len(admitted_gpus(state, pod.request, UNLIMITED))


def _left_out(found: dict[str, Allocation | None]) -> int:
    return sum(allocation is None for allocation in found.values())
