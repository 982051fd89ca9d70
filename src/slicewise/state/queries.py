"""Queries about pods, put to the cluster as it is now without what the pod itself holds already.

A pod that was decided on before and is asked about again must not stand in its own way.
"""

from dataclasses import replace
from typing import Final

from slicewise.cluster import CachedPodReader
from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.pod_query import PodQuery
from slicewise.model import NO_RULES, MiB, Node, Pod, Reason, Request, SlicewiseError, Snapshot
from slicewise.placement import (
    UNLIMITED,
    NodeTables,
    PlacementRequest,
    Planner,
    QuotaLimits,
    Screener,
    Screening,
)
from slicewise.state.cluster_state import ClusterState

UNASKED: Final = "default"
"""The policy where nobody asks for one."""


class NotReadyError(SlicewiseError):
    """The cluster is not known well enough yet for a decision."""


class PodQueries:
    """Builds queries from what is known of the cluster now."""

    def __init__(self, state: ClusterState, dialects: Dialects = DEFAULT) -> None:
        self.state = state
        self.dialects = dialects
        self._requests = CachedPodReader(dialects)
        self._screener = (NodeTables(), Screener(NodeTables()))
        self._gpu_names = dialects.pod_amounts - {"cpu", "memory"}

    def build(self, pod: Pod, snapshot: Snapshot | None = None) -> PodQuery:
        """The query for this pod, put to another cluster than today's if one is given.

        Raises when the pod cannot be read.
        """
        units = self.state.ledger.memory_units
        request = self._requests.read_request(pod)
        snapshot = self.state.snapshot() if snapshot is None else snapshot
        planner = self._find_planner(pod, request)
        if not request.containers:
            return PodQuery(pod, PlacementRequest(request), snapshot, planner, self.dialects)
        if (why := self.state.unready) is not None:
            raise NotReadyError(f"this extender cannot decide now, retry later: {why}")
        for name, uid in self.state.ledger.reserved_on(pod.uid):
            snapshot = snapshot.release(name, uid)
        wanted = PlacementRequest(
            request,
            self._limits_for(pod, request, snapshot, planner),
            salt=pod.uid,
            unit_limits={
                unit: self._limits_for(pod, request.in_unit(unit), snapshot, planner)
                for unit in (units if request.memory_unit is not None else ())
            },
        )
        return PodQuery(pod, wanted, snapshot, planner, self.dialects, units)

    def _find_planner(self, pod: Pod, request: Request) -> Planner:
        """The policy asked for by the pod or by whoever runs this, else that of its system."""
        planner = self.state.planner(request.constraints.policy)
        if request.constraints.policy is not None or planner.policy.name != UNASKED:
            return planner
        known = self.dialects.known_policy(pod) if request.containers else None
        return planner if known is None else self.state.planner(known)

    def screen(self, query: PodQuery, names: list[str]) -> Screening:
        """What each of these nodes says of the pod."""
        tables = query.planner.tables
        if self._screener[0] is not tables:
            self._screener = (tables, Screener(tables))
        found = self._screener[1].screen(query.snapshot, query.wanted, names)
        return self._admit_claims(query, names, found) if self.state.served_names else found

    def _admit_claims(self, query: PodQuery, names: list[str], screening: Screening) -> Screening:
        """The same with the nodes on which a claim will serve what the pod asks for by name."""
        served = {
            name
            for name, reason in screening.reasons.items()
            if reason is Reason.CLAIMS
            and (state := query.snapshot.get(name)) is not None
            and self.comes_by_claim(query.pod, state.node)
        }
        if not served:
            return screening
        fits = [fit or name in served for fit, name in zip(screening.fits, names, strict=True)]
        reasons = {name: why for name, why in screening.reasons.items() if name not in served}
        return Screening(fits, reasons, screening.unknown)

    def comes_by_claim(self, pod: Pod, node: Node | None) -> bool:
        """Whether the pod's GPUs come from a claim if it goes to this node."""
        if pod.by_claim:
            return True
        if node is None or not node.gpus or not all(gpu.claims for gpu in node.gpus):
            return False
        asked = {
            name
            for container in pod.containers
            for name in (*container.limits, *container.requests)
            if name in self._gpu_names
        }
        return bool(asked) and asked <= self.state.served_names

    def _limits_for(
        self, pod: Pod, request: Request, snapshot: Snapshot, planner: Planner
    ) -> QuotaLimits:
        limits = self._quota_for(pod, request, snapshot, planner)
        rules = self.state.isolation_rules(pod.namespace)
        return limits if rules == NO_RULES else replace(limits, isolation=rules)

    def _quota_for(
        self, pod: Pod, request: Request, snapshot: Snapshot, planner: Planner
    ) -> QuotaLimits:
        quota = self.state.quota
        if not quota.limits(pod.namespace):
            return UNLIMITED
        reserved = self.state.ledger.reserved_quota(pod.uid)
        usage = snapshot.usage.reserve(pod.namespace, reserved, -1)
        models = _read_models(planner, snapshot)
        return quota.limits_for(pod.namespace, request, usage, models)

    def demand(self, query: PodQuery) -> dict[str, int]:
        """What the pod counts for in its namespace's quota, by each model that it may go to."""
        quota, pod = self.state.quota, query.pod
        if not quota.limits(pod.namespace):
            return {}
        models = _read_models(query.planner, query.snapshot)
        return quota.demand_by_model(pod.namespace, query.wanted.request, models)


def _read_models(planner: Planner, snapshot: Snapshot) -> dict[str, MiB]:
    """Every GPU model of the cluster with its smallest memory."""
    planner.tables.sync(snapshot)
    models: dict[str, MiB] = {}
    for each in planner.tables.classes:
        for gpu in each.gpus:
            models[gpu.model] = MiB(min(gpu.memory, models.get(gpu.model, gpu.memory)))
    return models
