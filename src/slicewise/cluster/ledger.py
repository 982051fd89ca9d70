"""The ledger: who holds what of every GPU, from events alone.

What the API says of a pod beats what we assumed. A share is freed when its pod has ended or is
gone, never when deletion merely starts. What cannot be read is charged to every GPU of its node
and reported. Pods that others bound and whose system names no GPUs are adopted.
Events may repeat, come late or out of order: versions and UIDs decide.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from slicewise.cluster.adoption import (
    UNNAMED,
    AdoptedPod,
    Adoption,
    ChooseGpus,
    GpuChooser,
)
from slicewise.cluster.charges import can_hold, charge_everywhere, charge_fully
from slicewise.cluster.entry import PodEntry, PodReader, problem_of, says_the_same
from slicewise.cluster.events import (
    Assume,
    Confirm,
    Event,
    Expire,
    Extend,
    Forget,
    GpuHealth,
    Hold,
    NodeGone,
    NodeSeen,
    Pin,
    PodGone,
    PodSeen,
)
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.node_inventory import NodeInventory
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.model import (
    Allocation,
    Host,
    Node,
    Phase,
    Pod,
    Request,
    Slice,
    SlicewiseError,
    Snapshot,
    UsageTotals,
    charge,
)

_REMEMBERED: Final = 1 << 16


class Ledger:
    """Events in, immutable snapshots out, at a cost that follows what changed."""

    def __init__(self, reader: PodReader, choose: ChooseGpus | None = None) -> None:
        self._reader = reader
        self._entries: dict[str, PodEntry] = {}
        self._holdings = HoldingIndex()
        self._adoption = Adoption(self._holdings, self._entries, choose or GpuChooser())
        self._inventory = NodeInventory()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._unconfirmed: dict[str, float] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    @property
    def usage(self) -> UsageTotals:
        return self.snapshot().usage

    def snapshot(self) -> Snapshot:
        self._adoption.assign_dirty()
        return self._holdings.store.snapshot()

    def apply(self, event: Event) -> bool:
        """Take in one event; false when it was stale, unknown or, for Assume, does not fit."""
        match event:
            case PodSeen():
                return self._see_pod(event.pod)
            case PodGone():
                return self._end(event.uid)
            case NodeSeen():
                return self._renew(self._inventory.see(event))
            case NodeGone():
                return self._inventory.lose(event) and self._holdings.drop(event.name)
            case Assume():
                return self._assume(event)
            case Extend():
                return self._extend(event)
            case Hold():
                return self._reserve(event)
            case Confirm():
                return self._confirm(event.uid)
            case Forget():
                return self._forget(event.uid)
            case Pin():
                return self._pin(event)
            case Expire():
                return self._expire(event.now)
            case GpuHealth():
                return self._renew(self._inventory.set_health(event))

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person, in a stable order."""
        self._adoption.assign_dirty()
        of_pods = [each.problem for each in self._entries.values() if each.problem is not None]
        return tuple(sorted((*of_pods, *self._holdings.problems())))

    def allocation(self, uid: str) -> tuple[Slice, ...] | None:
        """What the pod is charged on its node's GPUs, if it holds anything."""
        self._adoption.assign_dirty()
        entry = self._entries.get(uid)
        state = (
            None if entry is None or entry.node is None else self._holdings.store.get(entry.node)
        )
        if state is None:
            return None
        held = state.find(uid)
        return None if held is None else held.charges

    def adopted_pods(self) -> tuple[AdoptedPod, ...]:
        """The pods whose GPUs no record but the ledger names, by UID."""
        return self._adoption.listed()

    def adopted_pod(self, uid: str) -> AdoptedPod | None:
        """This pod with its GPUs, if no record but the ledger names them."""
        return self._adoption.find(uid)

    def pod(self, uid: str) -> Pod | None:
        """The pod as the API last showed it, if it did."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.pod

    def gpu_pods(self) -> Iterator[Pod]:
        """Every pod that asks for GPUs, as the API last showed it."""
        for entry in self._entries.values():
            if entry.pod is not None and entry.request is not None and entry.request.containers:
                yield entry.pod

    def reserved_on(self, uid: str) -> tuple[tuple[str, str], ...]:
        """Every node on which something counts for the pod, and under which UID."""
        entry = self._entries.get(uid)
        found = [] if entry is None or entry.node is None else [(entry.node, uid)]
        found += [(name.partition("@")[2], name) for name in self._held.get(uid, ())]
        return tuple(found)

    def assumption(self, uid: str) -> tuple[Assume, bool] | None:
        """What we decided for the pod and whether the API took it; None when nothing stands."""
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return None
        return entry.assumed, entry.confirmed

    @property
    def unconfirmed(self) -> int:
        """How many decisions the API has not yet taken."""
        return len(self._unconfirmed)

    @property
    def pods(self) -> int:
        return len(self._entries)

    def _see_pod(self, pod: Pod) -> bool:
        if pod.uid in self._ended:
            return False
        if pod.phase.terminal:
            return self._end(pod.uid)
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = PodEntry(pod.uid)
        elif entry.pod is not None:
            if pod.version < entry.pod.version:
                return False
            if says_the_same(entry.pod, pod):
                entry.pod = pod
                return True
        entry.pod = pod
        # An agent of ours starts no container before the record is there, so such a pod is free
        # to be assigned GPUs; one that ran before us has GPUs that only its node knows.
        entry.waited = entry.waited or pod.phase is Phase.PENDING
        entry.request, entry.problem = self._read_request(pod)
        if pod.node is not None:
            # From here on the record on the pod counts, not what we assumed.
            self._unconfirmed.pop(pod.uid, None)
            entry.chosen = self._unhold(pod.uid, pod.node) or entry.chosen
        self._settle(entry)
        return True

    def _end(self, uid: str) -> bool:
        entry = self._entries.pop(uid, None)
        if uid not in self._ended:
            self._ended[uid] = None
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
        self._unconfirmed.pop(uid, None)
        self._unhold(uid)
        if entry is None:
            return False
        self._holdings.move(entry, None)
        return True

    def _renew(self, node: Node | None) -> bool:
        """Update a node's state to its inventory; false when the event was stale."""
        if node is None:
            return False
        if self._holdings.renew(node):
            for uid in self._holdings.pods_on(node.name):
                self._settle(self._entries[uid])
        return True

    def _assume(self, event: Assume) -> bool:
        """Count an allocation we decided on, if it fits what is free right now."""
        entry = self._entries.get(event.uid)
        if event.uid in self._ended or (entry and entry.pod and entry.pod.node is not None):
            return False
        # Our own decision replaces the reservations for another scheduler's bind.
        self._unhold(event.uid)
        self._adoption.assign_dirty()
        state = self._holdings.store.get(event.allocation.node)
        if state is None:
            return False
        charges = charge(event.request, event.allocation)
        if not can_hold(state.release(event.uid), charges):
            return False
        if entry is None:
            entry = self._entries[event.uid] = PodEntry(event.uid)
        entry.assumed, entry.confirmed = event, False
        self._unconfirmed[event.uid] = event.deadline
        self._holdings.move(entry, event.allocation.node)
        self._holdings.hold(entry, charges, event.request.host)
        return True

    def _extend(self, event: Extend) -> bool:
        """Move the deadline of an assumption that the API has not yet taken."""
        if event.uid not in self._unconfirmed:
            return False
        self._unconfirmed[event.uid] = event.deadline
        return True

    def _reserve(self, event: Hold) -> bool:
        """Count GPUs on every node that the pod may go to, each as if it were a pod."""
        pod = event.pod
        self._unhold(pod.uid)
        entry = self._entries.get(pod.uid)
        if pod.uid in self._ended or (entry and entry.pod and entry.pod.node is not None):
            return False
        held = []
        for allocation in event.allocations:
            assume = Assume(
                uid=f"{pod.uid}@{allocation.node}",
                namespace=pod.namespace,
                name=pod.name,
                request=event.request,
                allocation=allocation,
                deadline=event.deadline,
                priority=pod.priority,
            )
            self._entries[assume.uid] = PodEntry(assume.uid, tentative=True)
            if self._assume(assume):
                held.append(assume.uid)
            else:
                del self._entries[assume.uid]
        if held:
            self._held[pod.uid] = tuple(held)
        return bool(held)

    def _unhold(self, uid: str, node: str | None = None) -> Allocation | None:
        """Release what was reserved for the pod; returns what that was on this node."""
        found = None
        for name in self._held.pop(uid, ()):
            held = self._entries.get(name)
            if held is not None and held.assumed is not None:
                if held.assumed.allocation.node == node:
                    found = held.assumed.allocation
                self._forget(name)
        return found

    def _confirm(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return False
        entry.confirmed = True
        self._unconfirmed.pop(uid, None)
        return True

    def _forget(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return False
        entry.assumed, entry.confirmed = None, False
        self._unconfirmed.pop(uid, None)
        if entry.pod is None:
            del self._entries[uid]
            self._holdings.move(entry, None)
        else:
            self._settle(entry)
        return True

    def _pin(self, event: Pin) -> bool:
        entry = self._entries.get(event.uid)
        if entry is None or entry.chosen is None:
            return False
        entry.pinned = event.pinned
        return True

    def _expire(self, now: float) -> bool:
        late = [uid for uid, deadline in self._unconfirmed.items() if deadline <= now]
        for uid in late:
            self._forget(uid)
            # All that is held for one pod ends at the same time.
            self._held.pop(uid.partition("@")[0], None)
        return bool(late)

    def _read_request(self, pod: Pod) -> tuple[Request | None, Problem | None]:
        try:
            return self._reader.read_request(pod), None
        except SlicewiseError as error:
            return None, problem_of(pod, ProblemKind.UNREADABLE_REQUEST, str(error))

    def _settle(self, entry: PodEntry) -> None:
        """Find the pod's node and allocation, and charge exactly that."""
        pod = entry.pod
        if pod is not None and pod.node is not None:
            self._holdings.move(entry, pod.node)
            self._charge_bound(entry, pod)
            return
        if entry.assumed is not None:
            self._holdings.move(entry, entry.assumed.allocation.node)
            assumed = entry.assumed
            self._holdings.hold(
                entry, charge(assumed.request, assumed.allocation), assumed.request.host
            )
            return
        target = None if pod is None else self._reader.read_target(pod)
        self._holdings.move(entry, target)
        if pod is not None and target is not None:
            self._charge_bound(entry, pod)

    def _charge_bound(self, entry: PodEntry, pod: Pod) -> None:
        """Charge a pod by its record; on every GPU of its node if that cannot be read."""
        state = None if entry.node is None else self._holdings.store.get(entry.node)
        if state is None:
            return
        self._holdings.mark_assigned(entry)
        if entry.request is None:
            self._holdings.hold(entry, charge_fully(state.node), Host(), certain=False)
            return
        request = entry.request
        if not request.containers:
            self._holdings.hold(entry, (), request.host)
            return
        if (
            entry.problem is not None
            and entry.problem.trouble != ProblemKind.UNREADABLE_REQUEST.value
        ):
            entry.problem = None
        try:
            allocation = self._reader.read_allocation(pod, state.node, request)
        except SlicewiseError as error:
            entry.problem = problem_of(pod, ProblemKind.UNREADABLE_ALLOCATION, str(error))
            allocation = None
        else:
            if allocation is None and self._may_choose(entry, pod, state.node):
                self._holdings.mark_unassigned(entry)
                return
            if allocation is None and entry.assumed is not None:
                allocation = entry.assumed.allocation
            if allocation is None:
                entry.problem = problem_of(pod, ProblemKind.MISSING_ALLOCATION, UNNAMED)
        entry.chosen, entry.pinned = None, False
        if allocation is None or allocation.node != state.node.name:
            self._holdings.hold(
                entry, charge_everywhere(request, state.node), request.host, certain=False
            )
        else:
            self._holdings.hold(entry, charge(request, allocation), request.host)

    def _may_choose(self, entry: PodEntry, pod: Pod, node: Node) -> bool:
        """Whether the GPUs of a bound pod are ours to choose; what we held for it counts first."""
        if pod.node is None or not self._reader.records_nothing(pod):
            return False
        if node.agent and not entry.waited:
            return False
        if entry.assumed is not None:
            entry.chosen, entry.assumed, entry.confirmed = entry.assumed.allocation, None, False
        return True
