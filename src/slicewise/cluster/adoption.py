"""Adoption: GPUs for pods that others bound and whose system names none.

They are chosen only when somebody looks at the ledger, so that a whole list of pods comes in
first: those that name their GPUs are counted before the others get what is left. A choice is kept
while it fits, so that GPUs change hands only when they must; one that is being recorded on its
pod is kept in any case. Whoever writes `spec.nodeName` may put any number of pods on a node, so
that only so many are looked at as a node can run.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

from slicewise.cluster.bound_pods import UNNAMED, count_gpus
from slicewise.cluster.charges import charge_everywhere
from slicewise.cluster.entry import PodEntry, problem_of
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.problems import ProblemKind
from slicewise.cluster.quota import Quota
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
from slicewise.placement import (
    UNLIMITED,
    PlacementRequest,
    Planner,
    QuotaLimits,
    StepBudget,
    admitted_gpus,
    explain,
)
from slicewise.placement.budget import ADOPT_STEPS

_CACHED: Final = 1024
# More than kubelets run on a node by default.
MOST_UNASSIGNED: Final = 128
"""How many pods of a node are given GPUs at a time."""
_SURPLUS: Final = f"{UNNAMED}; more than {MOST_UNASSIGNED} pods of its node wait for GPUs"
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
        budget = StepBudget(ADOPT_STEPS)
        placement = self.planner.place_on(alone, wanted, state.node.name, budget)
        return None if placement is None else placement.allocation


class Adoption:
    """Assigns GPUs to the pods that the index lists as unassigned."""

    def __init__(
        self, holdings: HoldingIndex, entries: Mapping[str, PodEntry], choose: ChooseGpus
    ) -> None:
        self._holdings = holdings
        self._entries = entries
        self._choose = choose
        self._quota = Quota()
        self._waiting: dict[str, tuple[object, set[str]]] = {}

    def limit(self, quota: Quota) -> bool:
        """Assign GPUs within this quota from now on; false when it is the one that counts."""
        if quota == self._quota:
            return False
        self._quota = quota
        self._holdings.dirty.update(self._holdings.unassigned)
        return True

    def assign_dirty(self) -> None:
        """Assign GPUs on every node where something changed."""
        dirty = self._holdings.dirty
        self._look_again()
        while dirty:
            # In an order of its own, so that who comes first within a quota is no accident.
            for name in sorted(dirty):
                self._assign_on(name)
                # What was just charged is no reason to look again.
                dirty.discard(name)

    def _assign_on(self, name: str) -> None:
        unassigned = self._holdings.unassigned.get(name, set())
        rest = self._holdings.store.get(name)
        if rest is None:
            self._forget(unassigned)
            return
        uids = sorted(self._leave_surplus(unassigned, rest.node))
        rest, pods = self._holdings.store.get(name) or rest, []
        for uid in uids:
            rest, entry = rest.release(uid), self._entries[uid]
            assert entry.request is not None
            asked = entry.request.on(rest.node)
            pods.append(UnassignedPod(uid, asked, entry.chosen, entry.pinned))
        over = self._find_over_quota(rest, pods)
        within = [each for each in pods if each.uid not in over]
        found = assign_all(rest, within, self._choose)
        # Whoever gets none comes last, when nothing changes any more.
        explained: dict[Request, str] = {}
        for uid in sorted(uids, key=lambda uid: found.get(uid) is None):
            entry = self._entries[uid]
            if uid in over:
                self._refuse(entry, over[uid])
            else:
                rest = self._charge(entry, rest, found[uid], explained)

    def _leave_surplus(self, uids: set[str], node: Node) -> set[str]:
        """Those of the pods that are given GPUs; the others wait for their turn."""
        if len(uids) <= MOST_UNASSIGNED:
            return uids
        turns: Counter[str] = Counter()
        ranks: dict[str, tuple[bool, bool, int, str]] = {}
        for entry in sorted((self._entries[uid] for uid in uids), key=_keep_order):
            assert entry.pod is not None
            # Namespaces take turns, so that none keeps the others waiting.
            turn = turns[entry.pod.namespace]
            turns[entry.pod.namespace] += 1
            ranks[entry.uid] = not entry.pinned, entry.chosen is None, turn, entry.uid
        kept = set(nsmallest(MOST_UNASSIGNED, ranks, key=lambda uid: ranks[uid]))
        for uid in uids - kept:
            entry = self._entries[uid]
            # What was said of it before is said of it still.
            if entry.problem is None or entry.problem.detail != _SURPLUS:
                self._leave_without(entry, node, _SURPLUS)
        return kept

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
        asked = entry.request.on(state.node)
        return AdoptedPod(entry.pod, asked, state.node, entry.chosen, entry.pinned, detail)

    def _look_again(self) -> None:
        """Note the nodes of pods that wait for a quota of which something was given back."""
        totals = self._holdings.store.usage.totals
        for namespace, (seen, nodes) in tuple(self._waiting.items()):
            if totals.get(namespace) is not seen:
                self._holdings.dirty |= nodes & self._holdings.unassigned.keys()
                del self._waiting[namespace]

    def _find_over_quota(self, rest: NodeState, pods: Sequence[UnassignedPod]) -> dict[str, str]:
        """The pods that our agent is not to start because of their quota, each with the numbers.

        Whoever binds a pod without asking us must not get more by it than by asking.
        """
        node, quota, over = rest.node, self._quota, {}
        if not node.agent or not (quota.unreadable or quota.namespaces):
            return {}
        state, usage = self._holdings.store.get(node.name), self._holdings.store.usage
        for each in pods:
            if state is not None and (held := state.find(each.uid)) is not None:
                usage = usage.remove(node, held)
        memory = {gpu.model: gpu.memory for gpu in node.gpus}
        for each in sorted(pods, key=_keep_order):
            pod = self._entries[each.uid].pod
            assert pod is not None
            limits = quota.limits_for(pod.namespace, each.request, usage, memory)
            demands = quota.demand_by_model(pod.namespace, each.request, memory)
            if not each.pinned and not _admits(limits, demands, node):
                over[each.uid] = limits.detail
            else:
                usage = usage.reserve(pod.namespace, demands)
        return over

    def _refuse(self, entry: PodEntry, detail: str) -> None:
        """Charge a pod over its quota no GPU: our agent does not start it."""
        pod, request, entry.chosen = entry.pod, entry.request, None
        assert pod is not None
        assert request is not None
        entry.problem = problem_of(pod, ProblemKind.OVER_QUOTA, f"{UNNAMED}: {detail}")
        self._holdings.hold(entry, (), request.host)
        totals = self._holdings.store.usage.totals.get(pod.namespace)
        _, nodes = self._waiting.get(pod.namespace, (None, set()))
        assert entry.node is not None
        self._waiting[pod.namespace] = totals, nodes | {entry.node}

    def _forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            entry = self._entries[uid]
            entry.chosen, entry.pinned, entry.problem = None, False, None

    def _charge(
        self,
        entry: PodEntry,
        rest: NodeState,
        allocation: Allocation | None,
        explained: dict[Request, str],
    ) -> NodeState:
        """Charge a pod its allocation, or every GPU of its node if too little was free.

        The node is returned with the allocation on it, so that the next can tell what is missing;
        why the same is missing for others is in `explained`.
        """
        pod, request = entry.pod, entry.request
        assert pod is not None
        assert request is not None
        request = request.on(rest.node)
        if allocation is None:
            if request not in explained:
                explained[request] = f"{UNNAMED}; {explain(rest, request, UNLIMITED)}"
            self._leave_without(entry, rest.node, explained[request])
            return rest
        entry.chosen, entry.problem = allocation, None
        charges = charge(request, allocation)
        self._holdings.hold(entry, charges, request.host)
        return rest.hold(Holding(entry.uid, pod.namespace, pod.name, charges))

    def _leave_without(self, entry: PodEntry, node: Node, detail: str) -> None:
        """Give the pod no GPU; it may have any of them where our agent does not run."""
        assert entry.pod is not None
        assert entry.request is not None
        request, entry.chosen = entry.request.on(node), None
        entry.problem = problem_of(entry.pod, ProblemKind.MISSING_ALLOCATION, detail)
        # Our agent starts nothing without a record, so what it waits for is free for others.
        charges = () if node.agent else charge_everywhere(request, node)
        gpus = count_gpus(request) if charges else None
        self._holdings.hold(entry, charges, request.host, gpus=gpus)


def assign_all(
    state: NodeState, pods: Iterable[UnassignedPod], choose: ChooseGpus
) -> dict[str, Allocation | None]:
    """The GPUs of every unassigned pod on a node that holds the other pods alone."""
    kept_first = sorted(pods, key=_keep_order)
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
    # The node only fills up, so that what had no room once has none later.
    without_room: set[Request] = set()
    for pod in pods:
        allocation = pod.chosen if _keeps(state, pod) else None
        if allocation is None and pod.request not in without_room:
            allocation = choose(state, pod)
        found[pod.uid] = allocation
        if allocation is None:
            without_room.add(pod.request)
        else:
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


def _keep_order(pod: UnassignedPod | PodEntry) -> tuple[bool, bool, str]:
    """Who keeps what was chosen comes first."""
    return not pod.pinned, pod.chosen is None, pod.uid


def _admits(limits: QuotaLimits, demands: Mapping[str, int], node: Node) -> bool:
    if limits.pools is not None and node.pool not in limits.pools:
        return False
    return limits.models is None or (bool(demands) and demands.keys() <= limits.models)


def _left_out(found: dict[str, Allocation | None]) -> int:
    return sum(allocation is None for allocation in found.values())
