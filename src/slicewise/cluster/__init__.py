"""The one cache: events in, snapshots out; quota on what is really held."""

from slicewise.cluster.adoption import AdoptedPod, GpuChooser, UnassignedPod
from slicewise.cluster.entry import PodReader
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
from slicewise.cluster.feed import QUOTA_KEY, UNHEALTHY_KEY, UNHEALTHY_PREFIX, Feed
from slicewise.cluster.ledger import Ledger
from slicewise.cluster.pod_reader import CachedPodReader
from slicewise.cluster.problems import Problem, ProblemKind
from slicewise.cluster.quota import Allowance, Quota, read_quota

__all__ = [
    "QUOTA_KEY", "UNHEALTHY_KEY", "UNHEALTHY_PREFIX", "AdoptedPod", "AllocateClaims", "Allowance",
    "Assume", "CachedPodReader", "ClaimGone", "ClaimSeen", "ClaimUsed", "Confirm", "Event",
    "Expire", "Extend", "Feed", "Forget", "GpuChooser", "GpuHealth", "GrantClaim", "Hold", "Ledger",
    "NodeGone", "NodeSeen", "Pin", "PodGone", "PodReader", "PodSeen", "Problem", "ProblemKind",
    "Quota", "QuotaSeen", "ReleaseClaim", "TrustChanged", "UnassignedPod", "read_quota",
]  # fmt: skip
