"""ResourceClaims in the ledger: each counts once, however many pods use it.

A claim holds what was allocated to it until that is taken back or the claim is gone. Where it
needs our word first, it holds nothing before it was granted, by us or by an earlier leader: no
pod is bound to it until then. A refused claim holds nothing, for it is allocated again. What we
are about to allocate to a claim counts before it is written, and until the claim says otherwise.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from slicewise.cluster.events import AllocateClaims, ClaimSeen, GrantClaim
from slicewise.cluster.holding_index import HoldingIndex
from slicewise.model import Holding, Host, NodeState
from slicewise.model.claim import AllocationKey, Claim
from slicewise.model.refusal import Reason, Refusal

NO_HOST: Final = Host()
_REMEMBERED: Final = 1 << 16


@dataclass(slots=True)
class ClaimEntry:
    """What is known of one claim; `granted` is the allocation that this process granted.

    `planned` is the claim with what this process is about to allocate to it.
    """

    claim: Claim
    granted: AllocationKey | None = None
    nodes: tuple[str, ...] = ()
    planned: Claim | None = None
    host: Host = NO_HOST
    """What its pod asks of the node, while the pod is not counted there."""

    @property
    def counts(self) -> bool:
        """Whether pods may be bound to what was allocated."""
        claim = self.claim
        if not claim.devices or claim.refused:
            return False
        return not claim.pending or self.granted == claim.key

    @property
    def charged(self) -> Claim | None:
        """The claim with the devices that count for it; None where none do."""
        return self.claim if self.counts else self.planned


class ClaimBook:
    """Every claim by its UID, charged on the GPUs of its node."""

    def __init__(self, holdings: HoldingIndex) -> None:
        self._holdings = holdings
        self._entries: dict[str, ClaimEntry] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._waiting: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ClaimEntry]:
        return iter(self._entries.values())

    def find(self, uid: str) -> ClaimEntry | None:
        return self._entries.get(uid)

    def waiting(self) -> Iterator[ClaimEntry]:
        """The claims that wait for a verdict."""
        return (self._entries[uid] for uid in self._waiting)

    def see(self, event: ClaimSeen) -> bool:
        """Take over how the claim is now; false when something newer is known."""
        claim = event.claim
        entry = self._entries.get(claim.uid)
        if claim.uid in self._ended or (entry and claim.version < entry.claim.version):
            return False
        if entry is None:
            entry = self._entries[claim.uid] = ClaimEntry(claim)
        entry.claim = claim
        if entry.granted is not None and entry.granted != claim.key:
            entry.granted = None
        if claim.spec is None:
            # Something was allocated to it, by us or by others.
            entry.planned = None
        self._settle(entry)
        return True

    def lose(self, uid: str) -> bool:
        """The claim is gone for good."""
        self._ended[uid] = None
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        entry = self._entries.pop(uid, None)
        self._waiting.discard(uid)
        if entry is None:
            return False
        for node in entry.nodes:
            self._holdings.release_claim(node, uid)
        return True

    def grant(self, event: GrantClaim) -> bool:
        """Count a claim that waits for our word, if all of it fits what is free right now."""
        entry = self._entries.get(event.uid)
        if entry is None or entry.claim.key != event.key or not entry.claim.pending:
            return False
        if entry.granted != event.key:
            if self.find_refusal(entry.claim) is not None:
                return False
            entry.granted = event.key
            self._settle(entry)
        return True

    def allocate(self, event: AllocateClaims) -> bool:
        """Count claims that nothing was allocated to, if all of them fit what is free right now."""
        planned: list[Claim] = []
        for claim in event.claims:
            entry = self._entries.get(claim.uid)
            if (
                entry is None
                or entry.claim.spec is None
                or entry.planned is not None
                or self.find_refusal(claim) is not None
            ):
                for each in planned:
                    self.release(each.uid)
                return False
            entry.planned = claim
            entry.host = event.host if not planned else NO_HOST
            planned.append(claim)
            self._settle(entry)
        return True

    def release(self, uid: str) -> bool:
        """Free what was about to be allocated to a claim."""
        entry = self._entries.get(uid)
        if entry is None or entry.planned is None:
            return False
        entry.planned, entry.host = None, NO_HOST
        self._settle(entry)
        return True

    def use(self, uid: str) -> bool:
        """Count for the pod of a claim nothing beside GPUs any more."""
        entry = self._entries.get(uid)
        if entry is None or entry.host == NO_HOST:
            return False
        entry.host = NO_HOST
        self._settle(entry)
        return True

    def find_refusal(self, claim: Claim) -> Refusal | None:
        """Why the claim cannot have what was allocated to it; None when it can."""
        for node in claim.nodes:
            state = self._holdings.store.get(node)
            if state is None:
                return Refusal(Reason.NO_GPU, f"node {node} is not known")
            refusal = _find_refusal(state.release(claim.uid), claim)
            if refusal is not None:
                return refusal
        return None

    def settle(self, uid: str) -> None:
        """Charge the claim again, on a node that was renewed."""
        self._settle(self._entries[uid])

    def _settle(self, entry: ClaimEntry) -> None:
        claim = entry.claim
        if claim.pending:
            self._waiting.add(claim.uid)
        else:
            self._waiting.discard(claim.uid)
        charged = entry.charged
        nodes = () if charged is None else charged.nodes
        for node in entry.nodes:
            if node not in nodes:
                self._holdings.release_claim(node, claim.uid)
        entry.nodes = nodes
        for node in nodes:
            assert charged is not None
            self._holdings.hold_claim(node, self._describe(charged, node, entry.host))

    def _describe(self, claim: Claim, node: str, host: Host) -> Holding:
        state = self._holdings.store.get(node)
        return Holding(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.users[0].name if claim.users else claim.name,
            charges=() if state is None else claim.slices(state.node),
            host=host,
            claim=claim.name,
        )


def _find_refusal(state: NodeState, claim: Claim) -> Refusal | None:
    """Why the claim does not fit beside what is held on its node."""
    known = {gpu.device for gpu in state.node.gpus}
    for each in claim.devices:
        if each.pool == state.node.name and each.device not in known:
            detail = f"node {state.node.name} has no GPU {each.device}"
            return Refusal(Reason.NO_GPU, detail)
    for piece in claim.slices(state.node):
        at = state.node.position(piece.gpu)
        assert at is not None
        gpu, where = state.node.gpus[at], f"gpu {piece.gpu} of node {state.node.name}"
        if gpu.closed:
            return Refusal(Reason.UNHEALTHY, f"{where} takes no claims: it is {gpu.closed}")
        cores, memory = state.free_cores(at), state.free_memory(at)
        if piece.cores > cores:
            return Refusal(Reason.CORES, f"{where}: needs {piece.cores} percent, free is {cores}")
        if piece.memory > memory:
            return Refusal(Reason.MEMORY, f"{where}: needs {piece.memory} MiB, free is {memory}")
    return None
