"""How far the record on a pod is believed: signatures, take-over, and original agents' nodes."""

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Protocol

from slicewise.model.allocation import Allocation
from slicewise.model.pod import Phase, Pod


class SignatureState(Enum):
    """What a signature is worth."""

    VALID = "valid"
    NO_KEYS = "signed, and no public key is published yet"
    UNKNOWN_KEY = "signed with a key that is not published"
    WRONG = "not what was signed"


class Standing(Enum):
    """Why a record is believed, or why it is not."""

    SIGNED = "signed"
    TAKE_OVER = "unsigned, from before the take-over"
    ORIGINAL_AGENT = "unsigned, on a node of an original agent"
    UNCHECKED = "not checked"
    UNSIGNED = "unsigned"
    FORGED = "forged"

    @property
    def believed(self) -> bool:
        return self not in (Standing.UNSIGNED, Standing.FORGED)


@dataclass(frozen=True, slots=True)
class SignedAllocation:
    """What a signed record grants, by which leader, and when it was decided.

    Epochs grow from one leader to the next; of two records on one GPU the older one loses.
    """

    allocation: Allocation
    epoch: int
    decided_ns: int

    @property
    def order(self) -> tuple[int, int]:
        """Greater is newer."""
        return self.epoch, self.decided_ns


@dataclass(frozen=True, slots=True)
class RecordVerdict:
    """How far a pod's record is believed; `signed` has its content where it was signed."""

    standing: Standing
    signed: SignedAllocation | None = None
    detail: str = ""
    signature: SignatureState | None = None
    """What its signature is worth; None where it has none."""

    @property
    def believed(self) -> bool:
        return self.standing.believed


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """Which unsigned records administrators want believed; times are seconds since 1970."""

    takeover_began: int | None = None
    takeover_ended: int | None = None
    original_nodes: tuple[str, ...] = ()
    """Names of nodes with an original agent, which cannot verify; `*` and `?` are wildcards."""

    @property
    def taking_over(self) -> bool:
        return self.takeover_began is not None and self.takeover_ended is None

    def has_original_agent(self, node: str) -> bool:
        return any(fnmatchcase(node, pattern) for pattern in self.original_nodes)

    def precedes_takeover(self, pod: Pod) -> bool:
        """Whether the pod ran before the take-over that is under way."""
        if not self.taking_over or pod.node is None or pod.phase is not Phase.RUNNING:
            return False
        assert self.takeover_began is not None
        return 0 < pod.created < self.takeover_began


class RecordTrust(Protocol):
    """The keys and the policy of a cluster, as they are now."""

    @property
    def policy(self) -> TrustPolicy:
        """Which unsigned records are believed."""

    def verify(self, uid: str, text: str, signature: str) -> SignatureState:
        """Whether the signature is that of this record on the pod with this UID."""
