"""Why a pod does not go to a node: stable codes, a phrase for people, and the numbers."""

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """A stable code, the phrase `kubectl describe` shows, and whether evicting pods can help."""

    NO_GPU = ("NoGpu", "Node has no GPU", False)
    MODEL = ("GpuModelMismatch", "No GPU of an admitted model", False)
    UUID = ("GpuUuidMismatch", "No admitted GPU UUID", False)
    TOO_FEW_GPUS = ("TooFewGpus", "Node has too few GPUs", False)
    TOO_SMALL = ("GpuTooSmall", "No GPU is large enough", False)
    UNHEALTHY = ("GpuUnhealthy", "Too few healthy GPUs", False)
    TOPOLOGY = ("GpuTopology", "GPUs are not linked as demanded", False)
    QUOTA = ("GpuQuotaExceeded", "Namespace is over its GPU quota", False)
    QUOTA_UNREADABLE = ("GpuQuotaUnreadable", "GPU quota cannot be read", False)
    ISOLATION = ("InsufficientIsolation", "Insufficient GPU isolation", False)
    ISOLATION_NOT_ALLOWED = (
        "IsolationNotAllowed",
        "Namespace does not allow GPU shares without limits",
        False,
    )
    COUNTED = ("GpuOnlyCounted", "Node gives no GPU for this resource alone", False)
    CLAIMS = ("GpuServedByClaims", "Node gives GPUs to ResourceClaims only", False)
    POOL = ("GpuPoolMismatch", "Node is not in an admitted pool", False)
    CORES = ("InsufficientGpuCores", "Insufficient GPU compute", True)
    MEMORY = ("InsufficientGpuMemory", "Insufficient GPU memory", True)
    WHOLE_GPUS = ("InsufficientWholeGpus", "Insufficient whole GPUs", True)
    GPUS = ("InsufficientGpus", "Too few GPUs with enough free", True)
    TOPOLOGY_BUSY = ("GpuTopologyBusy", "Linked GPUs are in use", True)
    SCATTERED = ("GpuFragmented", "Free GPU shares do not fit together", True)
    UNDECIDED = ("GpuSearchEnded", "Too many ways to share GPUs to try them all", True)
    CPU = ("InsufficientCpu", "Insufficient CPU", True)
    HOST_MEMORY = ("InsufficientHostMemory", "Insufficient host memory", True)
    UNREADABLE = ("UnreadableAllocation", "A pod's GPU allocation cannot be read", True)

    def __init__(self, code: str, phrase: str, preemptible: bool) -> None:
        self.code = code
        self.phrase = phrase
        self.preemptible = preemptible


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one node refused, with the numbers."""

    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason.phrase}: {self.detail}"
