"""The interface through which services read the cluster's state."""

from typing import Protocol

from slicewise.cluster import Ledger, Problem, Quota
from slicewise.model import Snapshot
from slicewise.placement import Planner


class ClusterState(Protocol):
    """The current cluster."""

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""

    @property
    def quota(self) -> Quota | None:
        """What namespaces may hold; None while a quota that is demanded has not been read."""

    @property
    def ready(self) -> bool:
        """Whether everything was listed once, and this process may decide."""

    def snapshot(self) -> Snapshot:
        """The cluster now."""

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person."""

    def planner(self, policy: str | None = None) -> Planner:
        """The engine for a policy by its name, or for the policy of this service."""
