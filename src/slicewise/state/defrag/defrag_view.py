"""What plans of moves are made from: the ledger, pods, and nodes as a scheduler sees them."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from slicewise.explain.candidates import name_short_nodes
from slicewise.explain.pod_query import PodQuery
from slicewise.kube.client import Client
from slicewise.kube.eviction.evictions import list_budgets
from slicewise.kube.eviction.pod_facts import PodFacts, list_pod_facts
from slicewise.kube.objects import ObjectReader
from slicewise.model import Pod, SlicewiseError
from slicewise.placement.defrag import (
    DefragOutcome,
    MovablePod,
    MoveSimulator,
    SearchLimits,
    plan_moves,
)
from slicewise.state.candidates import SchedulerView
from slicewise.state.defrag.movable_pods import Budgets, find_obstacle
from slicewise.state.queries import PodQueries
from slicewise.state.settings import open_reader

UNCERTAIN: Final = "holds GPUs that are not known for certain"


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """Pods, their disruption budgets and nodes, as the API server has them."""

    pods: Mapping[str, PodFacts]
    budgets: Budgets
    scheduler: SchedulerView

    @classmethod
    async def read(cls, client: Client, reader: ObjectReader) -> "ClusterReading":
        pods = {each.uid: each for each in await list_pod_facts(client)}
        budgets = Budgets(await list_budgets(client))
        return cls(pods, budgets, await SchedulerView.read(client, reader))


class DefragView:
    """Plans moves on the cluster as it is now; each look makes another."""

    def __init__(
        self,
        queries: PodQueries,
        reading: ClusterReading,
        now: float,
        planned: frozenset[str] = frozenset(),
    ) -> None:
        """Look at the cluster; these pods are planned to move already."""
        self.queries = queries
        self.reading = reading
        self.movable: dict[str, MovablePod] = {}
        self.obstacles: Counter[str] = Counter()
        """How many pods that hold GPUs may not be moved, by reason."""
        self._now = now
        self._planned = planned
        self._names: dict[bytes, list[str]] = {}
        self._find_movable()

    def waiting(self) -> list[Pod]:
        """The pods that ask for GPUs and have no node, the most important and oldest first."""
        found = [
            pod
            for pod in self.queries.state.ledger.gpu_pods()
            if pod.node is None and not pod.deleting and pod.uid in self.reading.pods
        ]
        return sorted(found, key=lambda pod: (-pod.priority, pod.created, pod.namespace, pod.name))

    def ask(self, pod: Pod) -> PodQuery:
        """The query for a pod without a node, put to the nodes that moves could help with."""
        query = self.queries.build(pod)
        names, left_out = self.reading.scheduler.choose(self.reading.pods[pod.uid].spec)
        wanted = replace(query.wanted, nodes=[*names, *name_short_nodes(left_out)])
        return replace(query, wanted=wanted)

    def plan(self, query: PodQuery, limits: SearchLimits) -> DefragOutcome:
        """The fewest moves after which the pod fits."""
        movable = self.movable.values()
        return plan_moves(query.planner, query.snapshot, query.wanted, list(movable), limits)

    def simulate(self, query: PodQuery) -> MoveSimulator:
        """Moves on the cluster as it is now."""
        return MoveSimulator(query.planner, query.snapshot, query.wanted, self.movable)

    def _find_movable(self) -> None:
        for state in self.queries.state.snapshot():
            for held in state.holdings:
                if not held.charges or held.tentative:
                    continue
                pod = self.queries.state.ledger.pod(held.uid)
                facts = self.reading.pods.get(held.uid)
                if pod is None or facts is None or pod.node != state.node.name:
                    continue
                planned = held.uid in self._planned
                why = find_obstacle(facts, self.reading.budgets, planned=planned)
                if why is None and not held.certain:
                    why = UNCERTAIN
                made = None if why is not None else self._make(pod, facts)
                if made is None:
                    self.obstacles[why or UNCERTAIN] += 1
                else:
                    self.movable[held.uid] = made

    def _make(self, pod: Pod, facts: PodFacts) -> MovablePod | None:
        assert pod.node is not None
        try:
            query = self.queries.build(pod)
        except SlicewiseError:
            # What its successor asks for cannot be read.
            return None
        seconds = max(0, int(self._now) - facts.started) if facts.started else 0
        wanted = replace(query.wanted, nodes=[*self._choose(facts.spec), pod.node])
        return MovablePod(pod.uid, pod.node, wanted, seconds, query.planner)

    def _choose(self, spec: Mapping[str, Any]) -> list[str]:
        """The nodes that a successor may go to; pods of one controller share the answer."""
        asked = {key: spec.get(key) for key in _PLACING}
        text = msgspec.json.encode({**asked, "amounts": _read_amounts(spec)}, order="sorted")
        if text not in self._names:
            self._names[text], _ = self.reading.scheduler.choose({**spec, "nodeName": None})
        return self._names[text]


_PLACING: Final = ("nodeSelector", "affinity", "tolerations")


def _read_amounts(spec: Mapping[str, Any]) -> list[Any]:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return [each.get("resources") for each in containers]


class DefragReader:
    """Reads the cluster as it is whenever it is called; the ledger beneath stays current."""

    def __init__(self, client: Client, queries: PodQueries) -> None:
        self._client = client
        self._queries = queries
        self._reader = open_reader()

    async def __call__(self, planned: frozenset[str] = frozenset()) -> DefragView:
        reading = await ClusterReading.read(self._client, self._reader)
        return DefragView(self._queries, reading, time.time(), planned)
