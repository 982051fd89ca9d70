"""Queries about pods, put to the cluster as it is now without what the pod itself holds already.

A pod that was decided on before and is asked about again must not stand in its own way.
"""

from slicewise.cluster import CachedPodReader
from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.pod_query import PodQuery
from slicewise.model import MiB, Pod, Request, SlicewiseError, Snapshot
from slicewise.placement import (
    UNLIMITED,
    NodeTables,
    PlacementRequest,
    Planner,
    QuotaLimits,
    Screener,
    Screening,
)
from slicewise.state.live import ClusterState


class NotReadyError(SlicewiseError):
    """The cluster is not known well enough yet for a decision."""


class PodQueries:
    """Builds queries from what is known of the cluster now."""

    def __init__(self, state: ClusterState, dialects: Dialects = DEFAULT) -> None:
        self.state = state
        self.dialects = dialects
        self._requests = CachedPodReader(dialects)
        self._screener = (NodeTables(), Screener(NodeTables()))

    def build(self, pod: Pod, snapshot: Snapshot | None = None) -> PodQuery:
        """The query for this pod, put to another cluster than today's if one is given.

        Raises when the pod cannot be read.
        """
        request = self._requests.read_request(pod)
        snapshot = self.state.snapshot() if snapshot is None else snapshot
        planner = self.state.planner(request.constraints.policy)
        if not request.containers:
            return PodQuery(pod, PlacementRequest(request), snapshot, planner, self.dialects)
        if not self.state.ready:
            raise NotReadyError("this extender has not synced or does not lead: retry later")
        for name, uid in self.state.ledger.reserved_on(pod.uid):
            snapshot = snapshot.release(name, uid)
        limits = self._limits_for(pod, request, snapshot, planner)
        wanted = PlacementRequest(request, limits, salt=pod.uid)
        return PodQuery(pod, wanted, snapshot, planner, self.dialects)

    def screen(self, query: PodQuery, names: list[str]) -> Screening:
        """What each of these nodes says of the pod."""
        tables = query.planner.tables
        if self._screener[0] is not tables:
            self._screener = (tables, Screener(tables))
        return self._screener[1].screen(query.snapshot, query.wanted, names)

    def _limits_for(
        self, pod: Pod, request: Request, snapshot: Snapshot, planner: Planner
    ) -> QuotaLimits:
        quota = self.state.quota
        if quota is None:
            raise NotReadyError("the GPU quota has not been read yet: retry later")
        if pod.namespace not in quota.namespaces:
            return UNLIMITED
        models = _read_models(planner, snapshot)
        return quota.limits_for(pod.namespace, request, snapshot.usage, models)


def _read_models(planner: Planner, snapshot: Snapshot) -> dict[str, MiB]:
    """Every GPU model of the cluster with its smallest memory."""
    planner.tables.sync(snapshot)
    models: dict[str, MiB] = {}
    for each in planner.tables.classes:
        for gpu in each.gpus:
            models[gpu.model] = MiB(min(gpu.memory, models.get(gpu.model, gpu.memory)))
    return models
