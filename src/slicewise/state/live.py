"""The cluster as it is now: informers feed the ledger, and planners learn from what arrives.

Everything happens on one loop; a batch of changes is applied whole, so that a snapshot is never
taken in the middle of one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial
from time import monotonic
from typing import Any

import structlog

from slicewise.cluster import (
    UNHEALTHY_KEY,
    UNHEALTHY_PREFIX,
    CachedPodReader,
    Event,
    Feed,
    GpuChooser,
    Ledger,
    PodGone,
    PodSeen,
    Problem,
    ProblemKind,
    Quota,
    QuotaSeen,
)
from slicewise.dialects import DEFAULT, Dialects
from slicewise.kube import sources
from slicewise.kube.background_tasks import BackgroundTasks
from slicewise.kube.client import Client
from slicewise.kube.objects import ConfigMap, ObjectReader, PodBody
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchMonitor
from slicewise.model import (
    NO_RULES,
    IsolationRules,
    NodeNotice,
    Pod,
    SlicewiseError,
    Snapshot,
)
from slicewise.placement import (
    Planner,
)
from slicewise.state.claim_watch import ClaimWatch
from slicewise.state.cluster_state import NodeOverlay, StateListener
from slicewise.state.freed_room import FreedRoom
from slicewise.state.learning_planners import LearningPlanners, WorkloadStats
from slicewise.state.ledger_trust import LedgerTrust
from slicewise.state.namespace_rules import NamespaceRules
from slicewise.state.settings import StateSettings, choose_keys
from slicewise.state.trust import TrustWatch

_log = structlog.get_logger(__name__)


class LiveState:
    """The ledger and its planners, kept current from an API server."""

    def __init__(
        self,
        client: Client,
        settings: StateSettings | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        obstacle: Callable[[], str | None] = lambda: None,
        dialects: Dialects = DEFAULT,
    ) -> None:
        self.settings = settings or StateSettings()
        dialects = dialects.with_labels(self.settings.quota_labels)
        self.synced = asyncio.Event()
        """Set once everything has been listed."""
        self.reader = ObjectReader(choose_keys(dialects, self.settings.labels))
        """Reads pods and nodes as the ledger knows them; for the Writes beside this state."""
        self.dirty = asyncio.Event()
        """Set whenever pods or nodes have changed; the consumer clears it."""
        self.quota_changed = asyncio.Event()
        """Set whenever the quota has changed; the consumer clears it."""
        self._requests = CachedPodReader(dialects)
        self._planners = LearningPlanners(self.settings.policy)
        self.ledger = Ledger(self._requests, GpuChooser(self._planners.lone))
        self._feed = Feed(dialects, claims=self.settings.claims)
        self._client, self._clock = client, clock
        self._obstacle = obstacle
        self.listener: StateListener | None = None
        """Is called with every change of nodes and pods, after the ledger has applied it."""
        self.overlay: NodeOverlay | None = None
        """Completes nodes and pods before the ledger reads them; set before the start."""
        self._shown_nodes: dict[str, NodeNotice] = {}
        self._shown_pods: dict[str, dict[str, Pod]] = {}
        self._places: dict[str, str] = {}
        self._tasks = BackgroundTasks()
        self.watches = WatchMonitor()
        """The watches that decisions depend on."""
        self._quota_read: asyncio.Event | None = None
        self._namespaces: NamespaceRules | None = None
        if self.settings.namespaces:
            self._namespaces = NamespaceRules(client, self.settings.following)
        self.trust: TrustWatch | None = None
        """Whom the records on pods are believed by."""
        self._believing: LedgerTrust | None = None
        if self.settings.trust is not None:
            following = self.settings.following
            self.trust = TrustWatch(client, self.settings.trust, settings=following)
            self._believing = LedgerTrust(
                self.ledger, self.trust, self.dirty, partial(self._tasks.run_once, "reread")
            )
            self.trust.changed = self._believing.take
        self.before_pods: Callable[[], Awaitable[object]] | None = None
        """Awaited before pods are listed and after the trust in them was."""
        self.hindrance: Callable[[], str | None] = lambda: None
        """Why this process may not decide though it leads; None when it may."""
        self.further_problems: Callable[[], Sequence[Problem]] = tuple
        """What the service around this state reports beside it."""
        self._pods: asyncio.Future[Informer[PodBody, Pod]] = asyncio.Future()

    @property
    def workload_stats(self) -> WorkloadStats:
        """What pods have asked for so far."""
        return self._planners.stats

    @cached_property
    def freed(self) -> FreedRoom:
        """Tells of room that was freed where a scheduler cannot see it."""
        return FreedRoom(self.ledger)

    @cached_property
    def claims(self) -> ClaimWatch | None:
        """The ResourceClaims, where they are followed."""
        if not self.settings.claims:
            return None
        following = self.settings.following
        return ClaimWatch(
            self._client, self.ledger, self.freed, dirty=self.dirty, settings=following
        )

    @property
    def served_names(self) -> frozenset[str]:
        """The resources whose names ResourceClaims serve; none where they are not followed."""
        return frozenset() if self.claims is None else self.claims.served_names

    @property
    def ready(self) -> bool:
        """Whether everything was listed, is current, and this process may decide."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """Why no decision can be made at present; None when it is ready."""
        return self._unlisted or self._obstacle() or self.watches.stale or self.hindrance()

    @property
    def unsynced(self) -> str | None:
        """Why this process could not decide even if it led; None when it could."""
        return self._unlisted or self.watches.stale or self.hindrance()

    @property
    def _unlisted(self) -> str | None:
        if self.failure is not None:
            return self.failure
        return None if self.synced.is_set() else "not everything has been listed yet"

    @property
    def failure(self) -> str | None:
        """Which task has ended that must not; None when all run."""
        return self._tasks.failure

    @property
    def quota(self) -> Quota:
        """What namespaces may hold; nothing until the quota's ConfigMap was looked for."""
        read, place = self._quota_read, self.settings.quota
        if place is None or (read is not None and read.is_set()):
            return self._feed.quota
        return Quota(unreadable=f"ConfigMap {'/'.join(place)} could not be read so far")

    def isolation_rules(self, namespace: str) -> IsolationRules:
        """What the namespace demands of its pods' isolation; nothing where it is not followed."""
        return NO_RULES if self._namespaces is None else self._namespaces.find(namespace)

    def snapshot(self) -> Snapshot:
        """The cluster as of the last change."""
        return self.ledger.snapshot()

    def find_notice(self, node: str) -> NodeNotice | None:
        """A Node as the API last showed it."""
        return self._feed.find_notice(node)

    def problems(self) -> tuple[Problem, ...]:
        """Everything that needs a person, in a stable order."""
        found = [*self.ledger.problems(), *self._feed.problems()]
        found += self.further_problems()
        trust = self.trust
        if trust is not None and trust.problem and (trust.readable or not trust.missing):
            kind = ProblemKind.UNREADABLE_TRUST.value
            found.append(Problem("/".join(trust.place), kind, trust.problem))
        for bad in self.watches.bad_objects:
            kind = ProblemKind.UNREADABLE_OBJECT.value
            found.append(Problem(f"{bad.resource}/{bad.name}", kind, bad.reason))
        return tuple(sorted(found))

    def take_load(self, load: Mapping[str, Sequence[int]]) -> None:
        """Decide from now on by this measured load, percent of each GPU by node."""
        self._planners.tables.measure(load)

    def planner(self, policy: str | None = None) -> Planner:
        """The engine for a policy by its name, or for the policy of this service."""
        return self._planners.find(policy)

    async def start(self) -> None:
        """Follow the cluster from now on; returns once everything has been listed."""
        following, client = self.settings.following, self._client
        nodes = Informer(client, sources.nodes(self.reader), self._take_nodes, settings=following)
        self._follow(nodes)
        self._tasks.run("expiry", self._expire())
        self._tasks.run("watch monitor", self.watches.run())
        # Pods are read by the GPUs of their nodes, so nodes that come first save work.
        await nodes.synced.wait()
        waited = []
        for namespace, name in self._configmaps():
            take = partial(self._take_configmaps, namespace)
            source = sources.configmaps(namespace, name)
            maps = Informer(client, source, take, settings=following)
            self._follow(maps)
            if self.settings.quota is not None and self.settings.quota[0] == namespace:
                self._quota_read = maps.synced
            else:
                waited.append(maps.synced.wait())
        if self._namespaces is not None:
            self._follow(self._namespaces.informer)
        if self.claims is not None:
            for informer in (self.claims.informer, self.claims.classes):
                self._follow(informer)
                waited.append(informer.synced.wait())
        if self.trust is not None:
            self.watches.add(self.trust.informer)
            self._tasks.run("watch of trust", self.trust.run())
            await self.trust.synced.wait()
        if self.before_pods is not None:
            await self.before_pods()
        if self._believing is not None and self.settings.verify_seconds is None:
            self._believing.begin()
        pods = Informer(client, sources.pods(self.reader), self.take_pods, settings=following)
        # Binds and reads may know a pod that begins and ends while the watch is broken.
        pods.told_otherwise = self.ledger.existing_pods
        self._follow(pods)
        self._pods.set_result(pods)
        await asyncio.gather(pods.synced.wait(), *waited)
        if self._quota_read is not None:
            # A quota that cannot be read refuses pods, each with the reason, and stops no other.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._quota_read.wait(), self.settings.quota_seconds)
        self._take_quota()
        if self._namespaces is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._namespaces.synced.wait(), self.settings.quota_seconds)
        if self._believing is not None and self.settings.verify_seconds is not None:
            self._believing.begin()
            await self._believing.wait(self.settings.verify_seconds)
        self.synced.set()
        _log.info("synced", nodes=nodes.known, pods=pods.known)

    async def relist_pods(self) -> None:
        """Return once pods and claims were listed, and pods' trust read, as of now or later."""
        pods = await asyncio.shield(self._pods)
        claims = () if self.claims is None else (self.claims.informer.refresh(),)
        await asyncio.gather(pods.refresh(), *claims)
        await self.synced.wait()

    async def stop(self) -> None:
        if self._believing is not None:
            self._believing.stop()
        await self._tasks.stop()
        self.synced.clear()

    def _follow(self, informer: Informer[Any, Any]) -> None:
        self.watches.add(informer)
        self._tasks.run(f"watch of {informer.resource}", informer.run())

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

    async def _expire(self) -> None:
        while True:
            await self._client.sleep(self.settings.expire_seconds)
            self.freed.expire(self._clock())
            # A list without the quota's ConfigMap brings no change that would tell.
            self._take_quota()

    def _take_nodes(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                notice = self._complete_node(change.value)
                with self._watch_node(notice.name):
                    self._apply(self._feed.on_node(notice))
            else:
                self._shown_nodes.pop(change.key, None)
                self._apply(self._feed.on_node_deleted(change.key, change.version))
        self.dirty.set()
        if self.listener is not None:
            self.listener.on_nodes(changes)

    def _watch_node(self, name: str) -> AbstractContextManager[None]:
        # What is listed at the start is news to nobody.
        return self.freed.watch_node(name) if self.synced.is_set() else nullcontext()

    def take_pods(self, changes: Sequence[WatchEvent[Pod]]) -> None:
        for change in changes:
            if isinstance(change, Seen):
                if change.new:
                    self._learn(change.value)
                self.ledger.apply(PodSeen(self._complete_pod(change.value)))
            else:
                self._drop_shown(change.key)
                with self.freed.watch_pod(change.key):
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
                self._feed.on_quota(data)
                self._take_quota()
            elif lists_unhealthy and name.startswith(UNHEALTHY_PREFIX):
                node, text = name.removeprefix(UNHEALTHY_PREFIX), data.get(UNHEALTHY_KEY)
                with self._watch_node(node):
                    self._apply(self._feed.on_unhealthy_list(node, text))

    def _take_quota(self) -> None:
        if self.ledger.apply(QuotaSeen(self.quota)) and self.synced.is_set():
            self.quota_changed.set()

    def _learn(self, pod: Pod) -> None:
        try:
            units = self.ledger.memory_units
            request = self._requests.read_request(pod).in_unit(units[0] if units else None)
        except SlicewiseError:
            # The ledger reports what it cannot read; nothing is learned from it.
            return
        self._planners.count(request)

    async def renew_workload(self) -> None:
        """Let planners know the pods of late, once what takes long is worked out on a thread."""
        await self._planners.renew()

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self.ledger.apply(event)
