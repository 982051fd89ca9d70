"""From snapshot, request and policy to a placement or refusals: pure, no clock, no network."""

from slicewise.placement.explain import admitted_gpus, explain
from slicewise.placement.fits import fit_mask
from slicewise.placement.planner import (
    Decision,
    Load,
    Placement,
    PlacementRequest,
    Planner,
    Screener,
    Screening,
)
from slicewise.placement.policy import POLICIES, Policy, read_policy
from slicewise.placement.preempt import Eviction, evict, preempt
from slicewise.placement.quota_limits import UNLIMITED, QuotaLimits
from slicewise.placement.search import feasible
from slicewise.placement.tables import NodeTables
from slicewise.placement.workload import PodShape, Workload, shape_of

__all__ = [
    "POLICIES", "UNLIMITED", "Decision", "Eviction", "Load", "NodeTables", "Placement",
    "PlacementRequest", "Planner", "PodShape", "Policy", "QuotaLimits", "Screener", "Screening",
    "Workload", "admitted_gpus", "evict", "explain", "feasible", "fit_mask", "preempt",
    "read_policy", "shape_of",
]  # fmt: skip
