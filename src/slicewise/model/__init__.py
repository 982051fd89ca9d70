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
    MAX_CONTAINERS,
    MAX_GPUS_PER_NODE,
    MAX_MEMORY,
    MiB,
    MilliCpu,
    Percent,
)
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
from slicewise.model.holding import Holding, UsageTotals
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
    phases,
)
from slicewise.model.snapshot import CHUNK, Chunk, NodeState, Snapshot
from slicewise.model.words import count, how_many, model_admitted, model_matches, split_words

__all__ = [
    "BYTES_PER_MIB", "CHUNK", "FULL", "MAX_CONTAINERS", "MAX_GPUS_PER_NODE", "MAX_MEMORY",
    "WHOLE_GPU", "Allocation", "AskedAmounts", "Chunk", "Constraints", "Container",
    "ContainerAllocation", "ContainerRequest", "DialectError", "Gpu", "Holding", "Host",
    "InventoryError", "Links", "MiB", "MilliCpu", "Nearness", "Node", "NodeDetails",
    "NodeNotice", "NodeState", "Percent", "Phase", "Pod", "PodRecord", "PolicyError",
    "Quantity", "QuantityError", "QuotaError", "Reason", "Refusal", "Request", "Role", "Share",
    "Slice", "SlicewiseError", "Snapshot", "Taint", "TopologyConstraint", "TraceError",
    "UsageTotals", "charge", "count", "cut", "find_count", "fits", "fits_empty", "has_room",
    "how_many", "model_admitted", "model_matches", "peak", "phases", "read_bytes", "read_count",
    "read_milli_cpu", "split_words", "whole_gpus",
]  # fmt: skip
