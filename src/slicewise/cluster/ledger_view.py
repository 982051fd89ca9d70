"""What the ledger tells: snapshots, pods, allocations, problems; nothing here changes them."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from slicewise.cluster.adoption import AdoptedPod, Adoption, ChooseGpus, GpuChooser
from slicewise.cluster.bound_pods import BoundPods
from slicewise.cluster.claims import ClaimBook
from slicewise.cluster.entry import PodEntry, PodReader
from slicewise.cluster.events import Assume
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.cluster.node_inventory import NodeInventory
from slicewise.cluster.problems import Problem
from slicewise.cluster.reservations import QuotaReservations
from slicewise.cluster.superseded import find_superseded
from slicewise.model import MiB, Pod, RecordTrust, Refusal, Slice, Snapshot, UsageTotals
from slicewise.model.claim import Claim


class LedgerView:
    """The state of a ledger, and every question it answers."""

    def __init__(
        self,
        reader: PodReader,
        choose: ChooseGpus | None = None,
        *,
        trust: RecordTrust | None = None,
    ) -> None:
        """Read pods by this reader; without `trust` their records are not checked."""
        self._reader = reader
        self._bound_pods = BoundPods(reader, trust)
        self._entries: dict[str, PodEntry] = {}
        self._holdings = HoldingIndex()
        self.claims = ClaimBook(self._holdings)
        """The ResourceClaims, each with what it holds."""
        self._adoption = Adoption(self._holdings, self._entries, choose or GpuChooser())
        self._inventory = NodeInventory()
        self._reservations = QuotaReservations(self._holdings.store)
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._unconfirmed: dict[str, float] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    @property
    def usage(self) -> UsageTotals:
        return self.snapshot().usage

    def snapshot(self) -> Snapshot:
        self._adoption.assign_dirty()
        return self._holdings.store.snapshot()

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person, in a stable order."""
        self._adoption.assign_dirty()
        of_pods = [
            problem
            for each in self._entries.values()
            for problem in (each.unread, each.problem)
            if problem is not None
        ]
        return tuple(sorted((*of_pods, *self._holdings.problems(), *self.superseded())))

    def superseded(self) -> tuple[Problem, ...]:
        """The signed records that lose a GPU to others."""
        return tuple(find_superseded(self._holdings, self._entries))

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

    def refuse_claim(self, claim: Claim) -> Refusal | None:
        """Why a claim cannot have what was allocated to it; None when it can."""
        self._adoption.assign_dirty()
        return self.claims.find_refusal(claim)

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

    def known_pods(self) -> Iterator[Pod]:
        """Every pod as the API last showed it."""
        return (entry.pod for entry in self._entries.values() if entry.pod is not None)

    def existing_pods(self) -> Iterator[str]:
        """The UIDs of pods that the API has shown, or has taken our decision for."""
        return (
            uid for uid, entry in self._entries.items() if entry.pod is not None or entry.confirmed
        )

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

    def reserved_quota(self, uid: str) -> Mapping[str, int]:
        """What counts in a quota for a pod that others may yet bind, in percent by model."""
        return self._reservations.of(uid)

    def assumption(self, uid: str) -> tuple[Assume, bool] | None:
        """What we decided for the pod and whether the API took it; None when nothing stands."""
        entry = self._entries.get(uid)
        if entry is None or entry.assumed is None:
            return None
        return entry.assumed, entry.confirmed

    @property
    def newest_epoch(self) -> int:
        """The highest epoch of any signed record that was seen on a bound pod; 0 without one."""
        return self._bound_pods.newest_epoch

    @property
    def memory_units(self) -> tuple[MiB, ...]:
        """The units in which nodes count memory, the most common first."""
        return self._inventory.memory_units

    @property
    def unconfirmed(self) -> int:
        """How many decisions the API has not yet taken."""
        return len(self._unconfirmed)

    @property
    def pods(self) -> int:
        return len(self._entries)
