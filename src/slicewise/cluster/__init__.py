"""The one cache: events in, snapshots out; quota on what is really held."""

from slicewise.cluster.entry import Reader
from slicewise.cluster.events import (
    Assume,
    Confirm,
    Event,
    Expire,
    Extend,
    Forget,
    GpuHealth,
    Hold,
    NodeGone,
    NodeSeen,
    Pin,
    PodGone,
    PodSeen,
)
from slicewise.cluster.feed import QUOTA_KEY, UNHEALTHY_KEY, UNHEALTHY_PREFIX, Feed
from slicewise.cluster.giving import Claim, Gift, Giver
from slicewise.cluster.ledger import Ledger
from slicewise.cluster.problems import Problem, Trouble
from slicewise.cluster.quota import Allowance, Quota, read_quota
from slicewise.cluster.requests import Requests
from slicewise.cluster.usage import Usage

__all__ = [
    "QUOTA_KEY",
    "UNHEALTHY_KEY",
    "UNHEALTHY_PREFIX",
    "Allowance",
    "Assume",
    "Claim",
    "Confirm",
    "Event",
    "Expire",
    "Extend",
    "Feed",
    "Forget",
    "Gift",
    "Giver",
    "GpuHealth",
    "Hold",
    "Ledger",
    "NodeGone",
    "NodeSeen",
    "Pin",
    "PodGone",
    "PodSeen",
    "Problem",
    "Quota",
    "Reader",
    "Requests",
    "Trouble",
    "Usage",
    "read_quota",
]
