"""The nouns: GPUs, nodes, shares, requests, slices, allocations, refusals and snapshots.

Frozen values in whole numbers; this room imports no other.
"""

from slicewise.model.allocation import (
    Allocation,
    ContainerAllocation,
    Slice,
    charge,
    cut,
    peak,
    whole_gpus,
)
from slicewise.model.amounts import (
    BYTES_PER_MIB,
    FULL,
    MiB,
    MilliCpu,
    Percent,
)
from slicewise.model.bounds import MAX_CONTAINERS, MAX_GPUS_PER_NODE, MAX_MEMORY
from slicewise.model.errors import (
    DialectError,
    InventoryError,
    PolicyError,
    QuantityError,
    QuotaError,
    SlicewiseError,
    TraceError,
)
from slicewise.model.fits import AskedAmounts, fits, fits_empty, has_room
from slicewise.model.gpu import Gpu, Host, Links, Node
from slicewise.model.holding import Holding, QuotaCount, UsageTotals, percent_of
from slicewise.model.isolation import (
    COMPUTE_TIERS,
    HOOKED,
    MEMORY_TIERS,
    NO_RULES,
    NO_WISH,
    NOT_ISOLATED,
    STRONGEST,
    UNLIMITED_USE,
    Isolation,
    IsolationRules,
    IsolationTier,
    IsolationWish,
    OfferedIsolation,
    code_meets,
    least_isolation,
    promise,
    show_isolation,
)
from slicewise.model.node_details import NodeDetails, Taint
from slicewise.model.pod import Container, NodeNotice, Phase, Pod, PodRecord
from slicewise.model.quantity import Quantity, find_count, read_bytes, read_count, read_milli_cpu
from slicewise.model.refusal import Reason, Refusal
from slicewise.model.request import (
    WHOLE_GPU,
    Constraints,
    ContainerRequest,
    Nearness,
    Request,
    Role,
    Share,
    TopologyConstraint,
    peak_sum,
    phases,
)
from slicewise.model.snapshot import CHUNK, Chunk, NodeState, Snapshot
from slicewise.model.trust import (
    RecordTrust,
    RecordVerdict,
    SignatureState,
    SignedAllocation,
    Standing,
    TrustPolicy,
)
from slicewise.model.words import count, how_many, model_admitted, model_matches, split_words

__all__ = [
    "BYTES_PER_MIB", "CHUNK", "COMPUTE_TIERS", "FULL", "HOOKED", "MAX_CONTAINERS",
    "MAX_GPUS_PER_NODE", "MAX_MEMORY", "MEMORY_TIERS", "NOT_ISOLATED", "NO_RULES", "NO_WISH",
    "STRONGEST", "UNLIMITED_USE", "WHOLE_GPU", "Allocation", "AskedAmounts", "Chunk", "Constraints",
    "Container", "ContainerAllocation", "ContainerRequest", "DialectError", "Gpu", "Holding",
    "Host", "InventoryError", "Isolation", "IsolationRules", "IsolationTier", "IsolationWish",
    "Links", "MiB", "MilliCpu", "Nearness", "Node", "NodeDetails", "NodeNotice", "NodeState",
    "OfferedIsolation", "Percent", "Phase", "Pod", "PodRecord", "PolicyError", "Quantity",
    "QuantityError", "QuotaCount", "QuotaError", "Reason", "RecordTrust", "RecordVerdict",
    "Refusal", "Request", "Role", "Share", "SignatureState", "SignedAllocation", "Slice",
    "SlicewiseError", "Snapshot", "Standing", "Taint", "TopologyConstraint", "TraceError",
    "TrustPolicy", "UsageTotals", "charge", "code_meets", "count", "cut", "find_count", "fits",
    "fits_empty", "has_room", "how_many", "least_isolation", "model_admitted", "model_matches",
    "peak", "peak_sum", "percent_of", "phases", "promise", "read_bytes", "read_count",
    "read_milli_cpu", "show_isolation", "split_words", "whole_gpus",
]  # fmt: skip
