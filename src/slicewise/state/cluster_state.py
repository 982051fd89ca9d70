"""What services read of the current cluster, and what they may hang into it."""

from collections.abc import Sequence
from typing import Protocol

from slicewise.cluster import Ledger, Problem, Quota
from slicewise.kube.watch import WatchEvent, WatchMonitor
from slicewise.model import IsolationRules, NodeNotice, Pod, Snapshot
from slicewise.placement import Planner


class ClusterState(Protocol):
    """The current cluster, as services read it."""

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""

    @property
    def watches(self) -> WatchMonitor:
        """The watches that decisions depend on."""

    @property
    def quota(self) -> Quota:
        """What namespaces may hold; nothing while a quota that is demanded cannot be read."""

    @property
    def served_names(self) -> frozenset[str]:
        """The resources whose names ResourceClaims serve on nodes of claims."""

    def isolation_rules(self, namespace: str) -> IsolationRules:
        """What the namespace demands of its pods' isolation."""

    @property
    def ready(self) -> bool:
        """Whether everything was listed, is current, and this process may decide."""

    @property
    def unready(self) -> str | None:
        """Why no decision can be made at present; None when it is ready."""

    @property
    def unsynced(self) -> str | None:
        """Why this process could not decide even if it led; None when it could."""

    @property
    def failure(self) -> str | None:
        """What is broken for good, so that only a restart helps; None when nothing is."""

    def snapshot(self) -> Snapshot:
        """The cluster now."""

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person."""

    def planner(self, policy: str | None = None) -> Planner:
        """The engine for a policy by its name, or for the policy of this service."""


class StateListener(Protocol):
    """Is called with every change, after the ledger has applied it."""

    def on_nodes(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        """Nodes were seen or are gone."""

    def on_pods(self, changes: Sequence[WatchEvent[Pod]]) -> None:
        """Pods were seen or are gone."""


class NodeOverlay(Protocol):
    """Adds what agents report to nodes and pods of which the API server shows less."""

    def complete_node(self, notice: NodeNotice) -> NodeNotice:
        """The notice with what it lacks, or as it is."""

    def complete_pod(self, pod: Pod) -> Pod:
        """The pod with what it lacks, or as it is."""
