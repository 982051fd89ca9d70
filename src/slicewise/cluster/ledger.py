"""The ledger: who holds what of every GPU, from events alone.

What the API says of a pod beats what we assumed. A share is freed when its pod has ended or is
gone, never when deletion merely starts. What cannot be read is reported, and charged what its
limits say (`bound_pods`). Pods that others bound and whose system names no GPUs are adopted.
Events may repeat, come late or out of order: versions and UIDs decide.
"""

from typing import Final

from slicewise.cluster.charges import can_hold, keep_shares
from slicewise.cluster.entry import PodEntry, problem_of, says_the_same
from slicewise.cluster.events import (
    AllocateClaims,
    Assume,
    ClaimGone,
    ClaimSeen,
    ClaimUsed,
    Confirm,
    Event,
    Expire,
    Extend,
    Forget,
    GpuHealth,
    GrantClaim,
    Hold,
    NodeGone,
    NodeSeen,
    Pin,
    PodGone,
    PodSeen,
    QuotaSeen,
    ReleaseClaim,
    TrustChanged,
)
from slicewise.cluster.ledger_view import LedgerView
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.model import (
    Allocation,
    Node,
    Phase,
    Pod,
    Request,
    SlicewiseError,
    charge,
)

_REMEMBERED: Final = 1 << 16


class Ledger(LedgerView):
    """Events in, immutable snapshots out, at a cost that follows what changed."""

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
            case QuotaSeen():
                return self._adoption.limit(event.quota)
            case TrustChanged():
                return self._reread(event)
            case ClaimSeen():
                return self.claims.see(event)
            case ClaimGone():
                return self.claims.lose(event.uid)
            case GrantClaim():
                self._adoption.assign_dirty()
                return self.claims.grant(event)
            case AllocateClaims():
                self._adoption.assign_dirty()
                return self.claims.allocate(event)
            case ClaimUsed():
                return self.claims.use(event.uid)
            case ReleaseClaim():
                return self.claims.release(event.uid)

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
            if says_the_same(entry.pod, pod) and not (
                entry.by_phase and entry.pod.phase is not pod.phase
            ):
                entry.pod = pod
                return True
        before = entry.request if entry.pod is not None and entry.pod.node is not None else None
        entry.pod = pod
        # An agent of ours starts no container before the record is there, so such a pod is free
        # to be assigned GPUs; one that ran before us has GPUs that only its node knows.
        entry.waited = entry.waited or pod.phase is Phase.PENDING
        request, entry.unread = self._read_request(pod)
        if before is not None:
            # What a bound pod asks for is in its limits; edited annotations take nothing back.
            request = before if request is None else keep_shares(before, request)
        entry.request, entry.problem = request, None
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
                entry = self._entries.get(uid)
                if entry is None:
                    self.claims.settle(uid)
                else:
                    self._settle(entry)
        return True

    def _reread(self, event: TrustChanged) -> bool:
        """Read these pods again by what is believed now."""
        self._bound_pods.trust = event.trust
        for uid in event.uids:
            entry = self._entries.get(uid)
            if entry is not None:
                self._bound_pods.recheck(entry)
                self._settle(entry)
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
        """Count GPUs on every node that the pod may go to."""
        pod = event.pod
        self._unhold(pod.uid)
        entry = self._entries.get(pod.uid)
        if pod.uid in self._ended or (entry and entry.pod and entry.pod.node is not None):
            return False
        held = []
        for assume in event.assumptions():
            self._entries[assume.uid] = PodEntry(assume.uid, tentative=True)
            if self._assume(assume):
                held.append(assume.uid)
            else:
                del self._entries[assume.uid]
        if held:
            self._held[pod.uid] = tuple(held)
        self._reservations.add(event)
        return bool(held)

    def _unhold(self, uid: str, node: str | None = None) -> Allocation | None:
        """Release what was reserved for the pod; returns what that was on this node."""
        self._reservations.drop(uid)
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
        return self._reservations.expire(now) or bool(late)

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
        target = None if pod is None else self._bound_pods.find_target(entry, pod)
        self._holdings.move(entry, target)
        if pod is not None and target is not None:
            self._charge_bound(entry, pod)

    def _charge_bound(self, entry: PodEntry, pod: Pod) -> None:
        """Charge a pod what it costs on its node, or leave its GPUs to adoption."""
        state = None if entry.node is None else self._holdings.store.get(entry.node)
        if state is None:
            return
        self._holdings.mark_assigned(entry)
        cost = self._bound_pods.cost(entry, pod, state.node)
        if cost is None:
            entry.problem = None
            self._holdings.mark_unassigned(entry)
            return
        entry.problem, entry.chosen, entry.pinned = cost.problem, None, False
        self._holdings.hold(entry, cost.charges, cost.host, gpus=cost.gpus)
