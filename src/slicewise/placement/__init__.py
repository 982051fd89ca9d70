"""From snapshot, request and policy to a placement or refusals: pure, no clock, no network."""

from slicewise.placement.budget import STEPS, StepBudget
from slicewise.placement.decider import Load, Placement, PlacementRequest
from slicewise.placement.explain import explain
from slicewise.placement.groups import fit_mask
from slicewise.placement.kept_room import KeptRoom, keep_room
from slicewise.placement.planner import Decision, Planner, Screener, Screening
from slicewise.placement.policy import POLICIES, Policy, read_policy
from slicewise.placement.preempt import (
    Eviction,
    RoomPlan,
    VictimLimits,
    evict,
    plan_room,
    preempt,
)
from slicewise.placement.quota_limits import UNLIMITED, QuotaLimits, admitted_gpus
from slicewise.placement.scoring.price_tables import prepare_prices
from slicewise.placement.search import feasible
from slicewise.placement.tables import NodeTables
from slicewise.placement.workload import PodShape, Workload, shape_of

__all__ = [
    "POLICIES", "STEPS", "UNLIMITED", "Decision", "Eviction", "KeptRoom", "Load", "NodeTables",
    "Placement", "PlacementRequest", "Planner", "PodShape", "Policy", "QuotaLimits", "RoomPlan",
    "Screener", "Screening", "StepBudget", "VictimLimits", "Workload", "admitted_gpus", "evict",
    "explain", "feasible", "fit_mask", "keep_room", "plan_room", "preempt", "prepare_prices",
    "read_policy", "shape_of",
]  # fmt: skip
