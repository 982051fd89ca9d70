"""Queries about pods, put to the cluster as it is now without what the pod itself holds already.

A pod that was decided on before and is asked about again must not stand in its own way.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from slicewise.cluster import CachedPodReader, UsageTotals
from slicewise.dialects import DEFAULT, Dialects
from slicewise.explain.pod_query import PodQuery, put_state
from slicewise.model import MiB, NodeState, Pod, Request, SlicewiseError, Snapshot
from slicewise.placement import (
    UNLIMITED,
    NodeTables,
    PlacementRequest,
    Planner,
    QuotaLimits,
    Screener,
    Screening,
)
from slicewise.state.ports import ClusterState


class NotReadyError(SlicewiseError):
    """The cluster is not known well enough yet for anything to be promised."""


class PodQueries:
    """Builds queries from what is known of the cluster now."""

    def __init__(self, state: ClusterState, dialects: Dialects = DEFAULT) -> None:
        self.state = state
        self.dialects = dialects
        self._requests = CachedPodReader(dialects)
        self._screener = (NodeTables(), Screener(NodeTables()))

    def build(self, pod: Pod) -> PodQuery:
        """The query for this pod; raises when the pod cannot be read."""
        request = self._requests.read_request(pod)
        snapshot = self.state.snapshot()
        planner = self.state.planner(request.constraints.policy)
        if not request.containers:
            return PodQuery(pod, PlacementRequest(request), snapshot, planner, self.dialects)
        if not self.state.ready:
            raise NotReadyError("this extender has not synced or does not lead: retry later")
        ledger = self.state.ledger
        own = ledger.node_of(pod.uid)
        held = None if own is None else snapshot.get(own)
        for name, uid in ledger.reserved_on(pod.uid):
            state = snapshot.get(name)
            if state is not None:
                snapshot = put_state(snapshot, state.release(uid))
        limits = self._limits_for(pod, request, held, planner)
        wanted = PlacementRequest(request, limits, salt=pod.uid)
        return PodQuery(pod, wanted, snapshot, planner, self.dialects)

    def screen(self, query: PodQuery, names: list[str]) -> Screening:
        """What each of these nodes says of the pod."""
        tables = query.planner.tables
        if self._screener[0] is not tables:
            self._screener = (tables, Screener(tables))
        return self._screener[1].screen(query.snapshot, query.wanted, names)

    @contextmanager
    def _apart(self, pod: Pod, held: NodeState | None) -> Iterator[UsageTotals]:
        """What namespaces hold, without what the pod itself holds."""
        usage = self.state.ledger.usage
        own = (
            ()
            if held is None
            else tuple((held.node, each) for each in held.holdings if each.uid == pod.uid)
        )
        for node, each in own:
            usage.count(node, each, -1)
        try:
            yield usage
        finally:
            for node, each in own:
                usage.count(node, each, 1)

    def _limits_for(
        self, pod: Pod, request: Request, held: NodeState | None, planner: Planner
    ) -> QuotaLimits:
        quota = self.state.quota
        if quota is None:
            raise NotReadyError("the GPU quota has not been read yet: retry later")
        if pod.namespace not in quota.namespaces:
            return UNLIMITED
        models = _read_models(planner, self.state.snapshot())
        with self._apart(pod, held) as usage:
            return quota.limits_for(pod.namespace, request, usage, models)


def _read_models(planner: Planner, snapshot: Snapshot) -> dict[str, MiB]:
    """Every GPU model of the cluster with its smallest memory."""
    planner.tables.sync(snapshot)
    models: dict[str, MiB] = {}
    for kind in planner.tables.kinds:
        for model, memory, *_ in kind[0]:
            models[model] = min(MiB(memory), models.get(model, MiB(memory)))
    return models
