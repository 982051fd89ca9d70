"""Problems that the ledger reports because a person must solve them."""

from dataclasses import dataclass
from enum import Enum

from slicewise.model import FULL, NodeState


class ProblemKind(Enum):
    UNREADABLE_REQUEST = "UnreadableRequest"
    UNREADABLE_ALLOCATION = "UnreadableAllocation"
    MISSING_ALLOCATION = "MissingAllocation"
    UNKNOWN_GPU = "UnknownGpu"
    OVER_COMMITTED = "OverCommitted"
    UNREADABLE_NODE = "UnreadableNode"
    UNREADABLE_QUOTA = "UnreadableQuota"
    UNREADABLE_HEALTH = "UnreadableHealth"
    UNREADABLE_TRUST = "UnreadableTrust"
    TAKE_OVER_MISMATCH = "TakeOverMismatch"
    UNREADABLE_OBJECT = "UnreadableObject"
    TAKE_OVER_WAITING = "TakeOverWaiting"
    UNSIGNED_RECORD = "UnsignedRecord"
    FORGED_RECORD = "ForgedRecord"
    REPLAYED_RECORD = "ReplayedRecord"
    SUPERSEDED_RECORD = "SupersededRecord"
    OVER_QUOTA = "OverQuota"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong: with which pod or GPU, and the numbers."""

    subject: str
    trouble: str
    detail: str


def overcommitted(state: NodeState) -> tuple[Problem, ...]:
    """The GPUs of a node on which more is held than there is."""
    found = []
    for at, gpu in enumerate(state.node.gpus):
        cores, memory = state.used_cores[at], state.used_memory[at]
        if cores > FULL or memory > gpu.memory:
            found.append(
                Problem(
                    f"{state.node.name}/gpu-{gpu.index}",
                    ProblemKind.OVER_COMMITTED.value,
                    f"{cores} of {FULL} percent and {memory} of {gpu.memory} MiB are held",
                )
            )
    return tuple(found)
