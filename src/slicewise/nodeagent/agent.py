"""The agent: its device plugins, the pods and the Node it watches, and its garbage collection."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from slicewise import __version__
from slicewise.dialects import AGENT, Dialects, build_dialects
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.kube.client import Client
from slicewise.kube.events import EventRecorder
from slicewise.kube.local_pods import LocalPod, find_local_pod, local_pods
from slicewise.kube.node_patch import EVERYTHING
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.pod_writer import PodWriter
from slicewise.kube.sources import one_node
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchMonitor
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.kubelet.plugin import DevicePlugin, DevicePluginHandler, PluginOffer
from slicewise.kubelet.registrar import Registrar
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.model import NodeNotice, Pod, RecordTrust, SlicewiseError
from slicewise.nodeagent.claims.claim_limits import ClaimLimits
from slicewise.nodeagent.claims.claim_store import ClaimStore
from slicewise.nodeagent.claims.service import ClaimParts, ClaimService
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory
from slicewise.nodeagent.limits.container_limits import LimitInjector
from slicewise.nodeagent.limits.vcuda import VcudaFolders, VcudaSockets
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import AllocationReader, NodeContext
from slicewise.nodeagent.plugin.cdi import CdiSpecs
from slicewise.nodeagent.plugin.cdi_handler import (
    AllocationServices,
    CdiHandler,
    StartCounts,
    StartedContainer,
)
from slicewise.nodeagent.plugin.containers import ContainerResolver
from slicewise.nodeagent.plugin.edits import EditsBuilder, HostDevices
from slicewise.nodeagent.plugin.garbage_collector import AgentFiles, GarbageCollector
from slicewise.nodeagent.plugin.grant_book import GrantBook
from slicewise.nodeagent.plugin.match_handler import MatchHandler, MatchServices
from slicewise.nodeagent.plugin.match_store import MatchStore
from slicewise.nodeagent.plugin.offers import UnservedPodWarnings, list_units, plan_offers
from slicewise.nodeagent.plugin.pod_flags import PodFlagWriter
from slicewise.nodeagent.plugin.refusals import StartRefusals
from slicewise.nodeagent.plugin.start_gate import StartGate
from slicewise.nodeagent.plugin.started_gpus import StartedGpuReader
from slicewise.nodeagent.plugin.vendor_cdi import VendorSpecs
from slicewise.nodeagent.settings import AgentSettings, ClaimsMode, IdentityMode
from slicewise.nodeagent.tasks import run_together
from slicewise.trust import TrustStore

_log = structlog.get_logger(__name__)
COMPONENT: Final = "slicewise-agent"
# Without CDI an admission waits for a record, and every other admission waits for it.
_ADMISSION_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class AgentEdges:
    """The clients the agent works with; `run.py` builds them."""

    client: Client
    holders: PodResourcesClient
    runtime: RuntimeClient | None = None
    version: str = ""
    """The runtime's name and version."""
    trust: RecordTrust = field(default_factory=TrustStore)
    """The published keys; without any, no GPU container starts."""
    limits: LimitInjector | None = None
    """What keeps containers within their shares; none limits nobody."""


class Agent:
    """One agent on one node; `run` serves until cancelled."""

    def __init__(
        self,
        settings: AgentSettings,
        inventory: GpuInventory,
        edges: AgentEdges,
        dialects: Dialects | None = None,
        *,
        facts: Callable[[], NodeFacts | None] = lambda: None,
    ) -> None:
        """Take over the GPUs; `facts` tells them as they are published."""
        self.settings = settings
        self.dialects = dialects or build_dialects(settings.share_unit)
        self.inventory = inventory
        self.book = GrantBook()
        self.pods = NodePods(
            settings.node, self.dialects, trust=edges.trust, started=self.book.slices
        )
        self.offered = () if settings.claims is ClaimsMode.ALL else settings.dialects
        """The systems whose resources are offered on this node."""
        editions = self.dialects.find_editions(self.offered)
        self.plan = plan_offers(editions, inventory.node, most_units=settings.most_units)
        self._edges = edges
        self.identity = settings.identity or IdentityMode.CDI
        self.starts = StartCounts()
        keys = self.dialects.keys
        self.client = edges.client
        amounts, gpus = self.dialects.amounts, self.dialects.resources
        self.reader = ObjectReader(KeyFilter(keys, keys, amounts, gpus=gpus))
        self.writes = PodWriter(edges.client, self.reader)
        self.flags = PodFlagWriter(self.writes)
        self.events = EventRecorder(edges.client, COMPONENT)
        self.refusals = StartRefusals(self.events)
        self.unserved = UnservedPodWarnings(self.plan, self.events)
        self._due = asyncio.Event()
        self.departed = asyncio.Event()
        """Set when a pod has left the node's list, ended or deleted; the consumer clears it."""
        self.publish_due = asyncio.Event()
        """Set when the Node no longer says what it should."""
        self.notice: NodeNotice | None = None
        """The Node as the watch last showed it."""
        node, client = settings.node, edges.client
        self._pod_informer = Informer(client, local_pods(self.reader, node), self.pods.apply)
        self._build_services()
        self.claims = self._build_claims(facts)
        self.plugins = tuple(self._build_plugin(*each) for each in self.plan.devices)
        self.registrar = Registrar(settings.paths.plugins, self.plugins)
        # Whoever publishes compares every key of the Node.
        source = one_node(ObjectReader(EVERYTHING), node)
        self._node_informer = Informer(client, source, self._node_changed)
        self.watches = WatchMonitor()
        """The watches that are reported when they are stale; containers start all the same."""
        self.watches.add(self._pod_informer)
        self.watches.add(self._node_informer)
        inventory.listen(self._gpus_changed)
        self.pods.listen(self._pod_changed)
        self._gpus_changed()

    @property
    def ready(self) -> bool:
        """Whether the kubelet knows every plugin, and the pods of the node are known."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """Why containers cannot be started as they should; None when they can."""
        if not self.registrar.ready:
            return "the kubelet does not know every device plugin yet"
        if not self.synced:
            return "the pods of this node have not been listed yet"
        return self.watches.stale or (None if self.claims is None else self.claims.unready)

    @property
    def synced(self) -> bool:
        """Whether the pods of the node are known."""
        return self._pod_informer.synced.is_set()

    @property
    def requests(self) -> Mapping[tuple[str, str, str], int]:
        """Requests to the API server so far, by verb, resource and outcome."""
        return self._edges.client.calls.counts

    @property
    def amounts(self) -> Mapping[str, int]:
        """The extended resources on the Node that no device plugin offers."""
        return self.plan.extended(self.inventory.node)

    @property
    def resources(self) -> frozenset[str]:
        """The resources that the kubelet allocates by unit."""
        return frozenset(resource.name for _, resource in self.plan.devices)

    async def run(self) -> None:
        """Serve until cancelled, then stop cleanly."""
        _log.info(
            "agent serving",
            node=self.settings.node,
            identity=self.identity.value,
            runtime=self._edges.version,
            gpu_count=len(self.inventory.node.gpus),
            resources=",".join(f"{name}:{way.value}" for name, way in self.plan.ways.items()),
        )
        # Nothing is being written yet, so what is half written was left by an agent that died.
        await asyncio.to_thread(self.services.specs.sweep)
        await asyncio.to_thread(self._recall_grants)
        claims = () if self.claims is None else (self.claims.run(),)
        try:
            await run_together(
                *claims,
                self.registrar.run(),
                self._pod_informer.run(),
                self._node_informer.run(),
                self.watches.run(),
                self.events.run(),
                self._sweep(),
                self._follow_strangers(),
            )
        finally:
            await self.flags.drain()
            await self.vcuda_sockets.close()

    def _build_services(self) -> None:
        settings, edges = self.settings, self._edges
        paths = settings.paths
        specs, folders = CdiSpecs(paths.cdi), VcudaFolders(Path(settings.places.pods))
        matches = self._matches = MatchStore(paths.state / "matched")
        containers = ContainerResolver(
            self.pods,
            edges.holders,
            paths.plugins,
            runtime=edges.runtime,
            wait_seconds=settings.watch_seconds,
        )
        allocations = AllocationReader(
            self.dialects,
            self.pods,
            self._context,
            read_pod=partial(find_local_pod, edges.client, self.reader),
            wait_seconds=settings.record_seconds,
        )
        host = HostDevices(paths.dev, settings.require_gpus, self.inventory.hardware.driver)
        builder = EditsBuilder(host, VendorSpecs(paths.vendor_cdi), folders)
        self.gate = StartGate(
            self.pods,
            self.book,
            lambda: self.inventory.node,
            synced=self._pod_informer.synced,
            runtime=edges.runtime,
        )
        self.services = AllocationServices(
            containers,
            allocations,
            builder,
            specs,
            self.starts,
            gate=self.gate,
            refusals=self.refusals,
            on_start=self._on_start,
            limits=edges.limits,
        )
        self.started_gpus = StartedGpuReader(
            self.pods, self.book, self.dialects, kubelet=edges.holders, runtime=edges.runtime
        )
        self.vcuda_sockets = VcudaSockets(self.pods, folders, edges.runtime)
        limit_folders = None if edges.limits is None else edges.limits.folders
        self.garbage = GarbageCollector(
            self.pods,
            edges.holders,
            AgentFiles(specs, folders, paths.dev, matches, self.dialects, limit_folders),
            forgetters=(
                containers.forget,
                self.refusals.forget,
                self.flags.forget,
                self.unserved.forget,
                self.vcuda_sockets.forget,
            ),
            settle=self.gate.settle,
        )
        self._folders = folders
        self._matching = MatchServices(
            self.pods,
            edges.holders,
            matches,
            folders,
            min(settings.record_seconds, _ADMISSION_SECONDS),
        )

    def _build_claims(self, facts: Callable[[], NodeFacts | None]) -> ClaimService | None:
        """What serves claims, where the node does or once did and some are still prepared."""
        paths = self.settings.paths
        store = ClaimStore(paths.state / "claims", paths.cdi)
        mode = self.settings.claims or ClaimsMode.OFF
        if mode is ClaimsMode.OFF and not len(store):
            return None
        parts = ClaimParts(
            self.inventory,
            facts,
            self.services.builder,
            self.gate.grants,
            self._claims_obstacle,
            self.writes,
            self.publish_due.set,
            self.pods,
            None if self._edges.limits is None else ClaimLimits(self._edges.limits),
            self.settings.evict_unhealthy,
        )
        self.garbage.claimed = store.__contains__
        service = ClaimService(self._edges.client, paths.dra, store, parts, mode=mode)
        self.gate.claims = service.grants
        self.pods.claimed = service.preparer.claimed
        return service

    async def _claims_obstacle(self) -> str | None:
        if self.identity is not IdentityMode.CDI:
            return "the container runtime does not support CDI, without which claims bring no GPU"
        if not self.synced:
            return "the pods of this node have not been listed yet"
        if self.settings.claims is not None and self.settings.claims.shares:
            return None
        holding = self._holding_by_name()
        if holding:
            # Pods removed by force count until the runtime says that nothing of them runs.
            await self.gate.settle()
            holding = self._holding_by_name()
        if holding:
            return f"pods hold GPUs by resource names: {', '.join(holding[:3])}; drain the node"
        return None

    def find_pod(self, uid: str) -> Pod | None:
        """The pod with this UID, while the watch shows it."""
        found = self.pods.by_uid(uid)
        return None if found is None else found.pod

    def _holding_by_name(self) -> list[str]:
        return sorted(each.name for each in self.gate.grants() if each.claimed)

    def _recall_grants(self) -> None:
        """Read what containers started with before the agent was started again."""
        cdi = self.identity is IdentityMode.CDI
        for grant in self.services.specs.grants() if cdi else self._matches.grants():
            self.book.put(grant)

    def trust_changed(self) -> None:
        """Judge every pod again by the keys and the policy that are published now."""
        self.pods.reread()
        self.started_gpus.wake()
        self.publish_due.set()

    def _build_plugin(self, edition: OfferedEdition, resource: OfferedResource) -> DevicePlugin:
        handler: DevicePluginHandler = CdiHandler(edition, resource, self.services)
        if self.identity is IdentityMode.MATCH:
            handler = MatchHandler(edition, resource, self.services, self._matching)
        offer = PluginOffer(resource.name, resource.socket, pre_start=resource.carries)
        return DevicePlugin(self.settings.paths.plugins, offer, handler)

    def _context(self) -> NodeContext:
        labels = {} if self.notice is None else dict(self.notice.labels)
        return NodeContext(self.inventory.node, self.settings.places, labels)

    @property
    def annotations(self) -> Mapping[str, str]:
        """How the agent works on this node, and what others started, as annotations of the Node."""
        facts = {
            "identity": self.identity.value,
            "resources": {name: way.value for name, way in sorted(self.plan.ways.items())},
            "runtime": self._edges.version,
            "version": __version__,
            **({} if self.claims is None else {"claims": self.claims.told}),
        }
        started = self.started_gpus.annotations(self._edges.trust.policy.taking_over)
        return {AGENT: json.dumps(facts, separators=(",", ":"), sort_keys=True), **started}

    def _node_changed(self, changes: Sequence[WatchEvent[NodeNotice]]) -> None:
        for change in changes:
            self.notice = change.value if isinstance(change, Seen) else None

    def _gpus_changed(self) -> None:
        hardware = self.inventory.hardware
        self.pods.set_gpus(hardware.gpus, hardware.links)
        node = self.inventory.node
        resources = {resource.name: resource for _, resource in self.plan.devices}
        for plugin in self.plugins:
            resource = resources[plugin.offer.resource]
            plugin.publish(node.gpus, lambda each=resource: list_units(each, self.inventory.node))  # type: ignore[misc]

    async def _on_start(self, started: StartedContainer) -> None:
        if started.injection.limit is not None:
            await self.vcuda_sockets.serve(started.pod_allocation.pod.uid)
        self.flags.hear(started)

    def _pod_changed(self, found: LocalPod | None) -> None:
        if found is None:
            self._due.set()
            self.departed.set()
            if self.claims is not None:
                self.claims.forget(lambda uid: self.pods.by_uid(uid) is not None)
            return
        if self.claims is not None:
            self.claims.hear(found)
        self.unserved.look(found.pod)
        self.started_gpus.wake()
        uid = found.pod.uid
        for container in found.containers:
            try:
                if container.id is not None:
                    self._folders.name_container(uid, container.name, container.id)
            except SlicewiseError as error:
                _log.warning("container id not linked", uid=uid, error=str(error))

    async def _follow_strangers(self) -> None:
        await self._pod_informer.synced.wait()
        await self.started_gpus.run(self.publish_due.set)

    async def _sweep(self) -> None:
        # Before the first list, every pod would look deleted.
        await self._pod_informer.synced.wait()
        await self.vcuda_sockets.resume()
        if self._edges.limits is not None:
            await asyncio.to_thread(self._edges.limits.sweep)
        await self.garbage.run(self.settings.sweep_seconds, self._due)
