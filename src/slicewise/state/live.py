"""The cluster as it is now: informers feed the ledger, and planners learn from what arrives.

Everything happens on one loop; a batch of changes is applied whole, so that a snapshot is never
taken in the middle of one.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Protocol

import structlog

from slicewise.cluster import (
    UNHEALTHY_KEY,
    UNHEALTHY_PREFIX,
    CachedPodReader,
    Event,
    Expire,
    Feed,
    GpuChooser,
    Ledger,
    PodGone,
    PodSeen,
    Problem,
    Quota,
)
from slicewise.dialects import DEFAULT, Dialects
from slicewise.kube import sources
from slicewise.kube.client import Call, Client
from slicewise.kube.errors import RefusedError
from slicewise.kube.objects import ConfigMap, KeyFilter, ObjectReader
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model import NodeNotice, Pod, Request, SlicewiseError, Snapshot
from slicewise.placement import Planner, PodShape, Workload, read_policy, shape_of

_log = structlog.get_logger(__name__)
# Each planner keeps tables of the whole cluster, and pods may name policies of their own.
_PLANNERS: Final = 8
_FIRST_ARRIVALS: Final = 50
_SHAPES: Final = 4096
_FORBIDDEN: Final = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """What is followed, and how."""

    policy: str = "default"
    """The policy of pods that name none."""
    quota: tuple[str, str] | None = ("kube-system", "gpuquota")
    """Namespace and name of the quota ConfigMap; none is no quota."""
    unhealthy_namespace: str | None = "kube-system"
    """Where `unhealthy-gpu-<node>` ConfigMaps are; none ignores them."""
    labels: tuple[str, ...] = ()
    """Further labels of nodes and pods to keep, by how they begin."""
    expire_seconds: float = 1.0
    """How often assumptions past their deadline are looked for."""
    following: WatchSettings = field(default_factory=WatchSettings)
    """How resources are listed and watched."""


class ClusterState(Protocol):
    """The current cluster, as services read it."""

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


class WorkloadStats:
    """What pods of this cluster ask for, counted as they arrive, for the planners.

    It is renewed whenever the number of arrivals has doubled, because every planner then computes
    its price tables anew.
    """

    def __init__(self) -> None:
        self.workload = Workload()
        """The statistics of the last renewal."""
        self.arrivals = 0
        """How many pods have arrived."""
        self._kinds: Counter[PodShape] = Counter()
        self._next = _FIRST_ARRIVALS

    def count(self, request: Request) -> bool:
        """Count one more pod; true when the statistics were renewed."""
        self._kinds[shape_of(request)] += 1
        self.arrivals += 1
        if self.arrivals < self._next:
            return False
        self._next *= 2
        if len(self._kinds) > _SHAPES:
            # Rare shapes never reach the statistics, and must not pile up over the years.
            self._kinds = Counter(dict(self._kinds.most_common(_SHAPES // 2)))
        self.workload = Workload(MappingProxyType(dict(self._kinds)))
        return True


class LiveState:
    """The ledger and its planners, kept current from an API server."""

    def __init__(
        self,
        client: Client,
        settings: StateSettings | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        may_decide: Callable[[], bool] = lambda: True,
        dialects: Dialects = DEFAULT,
    ) -> None:
        self.settings = settings or StateSettings()
        self.synced = asyncio.Event()
        """Set once everything has been listed."""
        keep = KeyFilter((*dialects.keys, *self.settings.labels), dialects.keys, dialects.amounts)
        self.reader = ObjectReader(keep)
        """Reads pods and nodes as the ledger knows them; for the Writes beside this state."""
        self.workload_stats = WorkloadStats()
        self.dirty = asyncio.Event()
        """Set whenever pods or nodes have changed; the consumer clears it."""
        self.quota_changed = asyncio.Event()
        """Set whenever the quota has changed; the consumer clears it."""
        self._requests = CachedPodReader(dialects)
        # Its tables follow one node at a time, so it shares them with no other planner.
        self._chooser = GpuChooser(
            Planner(read_policy(self.settings.policy), self.workload_stats.workload)
        )
        self.ledger = Ledger(self._requests, self._chooser)
        self._feed = Feed(dialects)
        self._client = client
        self._clock = clock
        self._may_decide = may_decide
        self.listener: StateListener | None = None
        """Is called with every change of nodes and pods, after the ledger has applied it."""
        self.overlay: NodeOverlay | None = None
        """Completes nodes and pods before the ledger reads them; set before the start."""
        self._shown_nodes: dict[str, NodeNotice] = {}
        self._shown_pods: dict[str, dict[str, Pod]] = {}
        self._places: dict[str, str] = {}
        self._planners: OrderedDict[str, Planner] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._broken = False
        self._quota_read = self.settings.quota is None

    @property
    def ready(self) -> bool:
        """Whether everything was listed, is being followed, and this process may decide."""
        return self.synced.is_set() and not self._broken and self._may_decide()

    @property
    def quota(self) -> Quota | None:
        """What namespaces may hold; None until the quota ConfigMap was looked for."""
        return self._feed.quota if self._quota_read else None

    def snapshot(self) -> Snapshot:
        """The cluster as of the last change."""
        return self.ledger.snapshot()

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person, in a stable order."""
        return tuple(sorted((*self.ledger.problems(), *self._feed.problems())))

    def planner(self, policy: str | None = None) -> Planner:
        """The engine for a policy by its name, or for the policy of this service."""
        name = policy or self.settings.policy
        planner = self._planners.get(name)
        if planner is None:
            planner = Planner(read_policy(name), self.workload_stats.workload)
            self._planners[name] = planner
            if len(self._planners) > _PLANNERS:
                self._planners.popitem(last=False)
        self._planners.move_to_end(name)
        return planner

    async def start(self) -> None:
        """Follow the cluster from now on; returns once everything has been listed."""
        following, client = self.settings.following, self._client
        nodes = Informer(client, sources.nodes(self.reader), self._take_nodes, settings=following)
        self._run("nodes", nodes.run())
        self._run("expiry", self._expire())
        # Pods are read by the GPUs of their nodes, so nodes that come first save work.
        await nodes.synced.wait()
        waited = []
        for namespace, name in self._configmaps():
            take = partial(self._take_configmaps, namespace)
            source = sources.configmaps(namespace, name)
            maps = Informer(client, source, take, settings=following)
            self._run("configmaps", maps.run())
            waited.append(maps.synced.wait())
        pods = Informer(client, sources.pods(self.reader), self._take_pods, settings=following)
        self._run("pods", pods.run())
        await asyncio.gather(pods.synced.wait(), *waited)
        self._quota_read = True
        self.synced.set()
        _log.info("synced", nodes=nodes.known, pods=pods.known)

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.synced.clear()

    def reread_node(self, node: str) -> None:
        """Apply again what the overlay says of a node and of its pods."""
        notice = self._shown_nodes.get(node)
        if notice is not None:
            self._apply(self._feed.on_node(self._complete_node(notice)))
        for pod in list(self._shown_pods.get(node, {}).values()):
            self.ledger.apply(PodSeen(self._complete_pod(pod)))

    def _complete_node(self, notice: NodeNotice) -> NodeNotice:
        if self.overlay is None:
            return notice
        self._shown_nodes[notice.name] = notice
        return self.overlay.complete_node(notice)

    def _complete_pod(self, pod: Pod) -> Pod:
        if self.overlay is None:
            return pod
        self._drop_shown(pod.uid)
        if pod.node is not None:
            self._places[pod.uid] = pod.node
            self._shown_pods.setdefault(pod.node, {})[pod.uid] = pod
        return self.overlay.complete_pod(pod)

    def _drop_shown(self, uid: str) -> None:
        place = self._places.pop(uid, None)
        if place is not None:
            self._shown_pods[place].pop(uid, None)

    def _configmaps(self) -> list[tuple[str, str | None]]:
        """Which ConfigMaps to follow: all of a namespace, or one by name."""
        quota, unhealthy = self.settings.quota, self.settings.unhealthy_namespace
        found: list[tuple[str, str | None]] = [] if unhealthy is None else [(unhealthy, None)]
        if quota is not None and quota[0] != unhealthy:
            found.append(quota)
        return found

    def _run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"state-{what}")
        task.add_done_callback(self._notice_end)
        self._tasks.append(task)

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        """Stop being ready when a task of ours ends by itself, which none ever should."""
        if not task.cancelled():
            self._broken = True
            _log.critical("state failed", task=task.get_name(), exc_info=task.exception())

    async def _expire(self) -> None:
        while True:
            await self._client.sleep(self.settings.expire_seconds)
            self.ledger.apply(Expire(self._clock()))

    def _take_nodes(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                self._apply(self._feed.on_node(self._complete_node(change.value)))
            else:
                self._shown_nodes.pop(change.key, None)
                self._apply(self._feed.on_node_deleted(change.key, change.version))
        self.dirty.set()
        if self.listener is not None:
            self.listener.on_nodes(changes)

    def _take_pods(self, changes: Sequence[WatchEvent[Pod]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                if change.new:
                    self._learn(change.value)
                self.ledger.apply(PodSeen(self._complete_pod(change.value)))
            else:
                self._drop_shown(change.key)
                self.ledger.apply(PodGone(change.key))
        self.dirty.set()
        if self.listener is not None:
            self.listener.on_pods(changes)

    def _take_configmaps(self, namespace: str, changes: Sequence[WatchEvent[ConfigMap]]) -> None:
        lists_unhealthy = namespace == self.settings.unhealthy_namespace
        for change in changes:
            if isinstance(change, Seen):
                name, data = change.value.name, change.value.data
            else:
                name, data = change.key, {}
            if (namespace, name) == self.settings.quota:
                before = self._feed.quota
                self._feed.on_quota(data)
                if self.synced.is_set() and self._feed.quota != before:
                    self.quota_changed.set()
            elif lists_unhealthy and name.startswith(UNHEALTHY_PREFIX):
                node, text = name.removeprefix(UNHEALTHY_PREFIX), data.get(UNHEALTHY_KEY)
                self._apply(self._feed.on_unhealthy_list(node, text))

    def _learn(self, pod: Pod) -> None:
        try:
            request = self._requests.read_request(pod)
        except SlicewiseError:
            # The ledger reports what it cannot read; nothing is learned from it.
            return
        if self.workload_stats.count(request):
            for planner in self._planners.values():
                planner.workload = self.workload_stats.workload
            self._chooser.planner.workload = self.workload_stats.workload

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self.ledger.apply(event)


def open_reader() -> ObjectReader:
    """Reads pods and nodes with everything that any dialect looks at."""
    return ObjectReader(KeyFilter(DEFAULT.keys, DEFAULT.keys, DEFAULT.amounts))


async def choose_settings(
    client: Client, policy: str, warn: Callable[[str], None]
) -> StateSettings:
    """What may be read; where ConfigMaps are forbidden, the quota is left out with a warning."""
    for resource in ("nodes", "pods"):
        await client.read(Call("list", resource, f"/api/v1/{resource}", {"limit": "1"}))
    path = "/api/v1/namespaces/kube-system/configmaps"
    try:
        await client.read(Call("list", "configmaps", path, {"limit": "1"}))
    except RefusedError as error:
        if error.code not in _FORBIDDEN:
            raise
        warn(f"quota and lists of unhealthy GPUs are left out: {error.message}")
        return StateSettings(policy=policy, quota=None, unhealthy_namespace=None)
    return StateSettings(policy=policy)
