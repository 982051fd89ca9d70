"""From snapshot, request and policy to a placement or refusals: pure, no clock, no network."""

from slicewise.placement.explain import admitted_gpus, explain
from slicewise.placement.grant import UNLIMITED, Grant
from slicewise.placement.planner import (
    Decision,
    Load,
    Placement,
    Planner,
    Question,
    Screener,
    Screening,
)
from slicewise.placement.policy import POLICIES, Policy, read_policy
from slicewise.placement.preempt import Eviction, evict, preempt
from slicewise.placement.search import feasible
from slicewise.placement.tables import Tables
from slicewise.placement.workload import Kind, Workload, kind_of

__all__ = [
    "POLICIES",
    "UNLIMITED",
    "Decision",
    "Eviction",
    "Grant",
    "Kind",
    "Load",
    "Placement",
    "Planner",
    "Policy",
    "Question",
    "Screener",
    "Screening",
    "Tables",
    "Workload",
    "admitted_gpus",
    "evict",
    "explain",
    "feasible",
    "kind_of",
    "preempt",
    "read_policy",
]
