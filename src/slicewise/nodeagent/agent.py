"""The agent: its device plugins, the pods and the Node it watches, and its garbage collection."""

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from slicewise import __version__
from slicewise.dialects import AGENT, Dialects, build_dialects
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kube.client import Call, Client
from slicewise.kube.events import EventRecorder
from slicewise.kube.local_pods import LocalPod, LocalPodBody, local_pods, read_local_pod
from slicewise.kube.node_patch import EVERYTHING
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.pod_writer import PodWriter
from slicewise.kube.reads import read_one
from slicewise.kube.sources import one_node
from slicewise.kube.watch import Informer, Seen, WatchEvent
from slicewise.kubelet.holders import PodResourcesClient
from slicewise.kubelet.plugin import DevicePlugin, DevicePluginHandler, PluginOffer
from slicewise.kubelet.registrar import Registrar
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.model import NodeNotice, SlicewiseError
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory
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
from slicewise.nodeagent.plugin.match_handler import AllocationExchange, MatchHandler, MatchServices
from slicewise.nodeagent.plugin.match_store import MatchStore
from slicewise.nodeagent.plugin.offers import UnservedPodWarnings, list_units, plan_offers
from slicewise.nodeagent.plugin.pod_flags import PodFlagWriter
from slicewise.nodeagent.plugin.vendor_cdi import VendorSpecs
from slicewise.nodeagent.settings import AgentSettings, IdentityMode

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


class Agent:
    """One agent on one node; `run` serves until cancelled."""

    def __init__(
        self,
        settings: AgentSettings,
        inventory: GpuInventory,
        edges: AgentEdges,
        dialects: Dialects | None = None,
    ) -> None:
        self.settings = settings
        self.dialects = dialects or build_dialects(settings.share_unit)
        self.inventory = inventory
        self.pods = NodePods(settings.node, self.dialects)
        editions = self.dialects.find_editions(settings.dialects)
        self.plan = plan_offers(editions, inventory.node, most_units=settings.most_units)
        self._edges = edges
        self.identity = settings.identity or IdentityMode.CDI
        self.starts = StartCounts()
        keys = self.dialects.keys
        self._reader = ObjectReader(KeyFilter(keys, keys, self.dialects.amounts))
        self.writes = PodWriter(edges.client, self._reader)
        self.flags = PodFlagWriter(self.writes)
        self.events = EventRecorder(edges.client, COMPONENT)
        self.unserved = UnservedPodWarnings(self.plan, self.events)
        self._due = asyncio.Event()
        self.notice: NodeNotice | None = None
        """The Node as the watch last showed it."""
        self._build_services()
        self.plugins = tuple(self._build_plugin(*each) for each in self.plan.devices)
        self.registrar = Registrar(settings.paths.plugins, self.plugins)
        node, client = settings.node, edges.client
        self._pod_informer = Informer(client, local_pods(self._reader, node), self.pods.apply)
        # Whoever publishes compares every key of the Node.
        source = one_node(ObjectReader(EVERYTHING), node)
        self._node_informer = Informer(client, source, self._node_changed)
        inventory.listen(self._gpus_changed)
        self.pods.listen(self._pod_changed)
        self._gpus_changed()

    @property
    def ready(self) -> bool:
        """Whether the kubelet knows every plugin, and the pods of the node are known."""
        return self.registrar.ready and self.synced

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
        try:
            await run_together(
                self.registrar.run(),
                self._pod_informer.run(),
                self._node_informer.run(),
                self.events.run(),
                self._sweep(),
            )
        finally:
            await self.flags.drain()
            await self.vcuda_sockets.close()

    def _build_services(self) -> None:
        settings, edges = self.settings, self._edges
        paths = settings.paths
        specs, folders = CdiSpecs(paths.cdi), VcudaFolders(Path(settings.places.pods))
        matches = MatchStore(paths.state / "matched")
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
            read_pod=self._read_pod,
            wait_seconds=settings.record_seconds,
        )
        host = HostDevices(paths.dev, settings.require_gpus, self.inventory.hardware.driver)
        builder = EditsBuilder(host, VendorSpecs(paths.vendor_cdi), folders)
        self.services = AllocationServices(
            containers, allocations, builder, specs, self.starts, on_start=self._on_start
        )
        self.vcuda_sockets = VcudaSockets(self.pods, folders, edges.runtime)
        self.garbage = GarbageCollector(
            self.pods,
            edges.holders,
            AgentFiles(specs, folders, paths.dev, matches),
            forgetters=(
                containers.forget,
                matches.forget,
                self.flags.forget,
                self.unserved.forget,
                self.vcuda_sockets.forget,
            ),
            dialects=self.dialects,
        )
        self._folders = folders
        exchange = AllocationExchange(self.pods, allocations, matches, self.writes)
        self._matching = MatchServices(
            self.pods,
            edges.holders,
            matches,
            exchange,
            folders,
            min(settings.record_seconds, _ADMISSION_SECONDS),
        )

    def _build_plugin(self, edition: OfferedEdition, resource: OfferedResource) -> DevicePlugin:
        handler: DevicePluginHandler = CdiHandler(edition, resource, self.services)
        if self.identity is IdentityMode.MATCH:
            handler = MatchHandler(edition, resource, self.services, self._matching)
        offer = PluginOffer(resource.name, resource.socket, pre_start=resource.carries)
        return DevicePlugin(self.settings.paths.plugins, offer, handler)

    def _context(self) -> NodeContext:
        labels = {} if self.notice is None else dict(self.notice.labels)
        return NodeContext(self.inventory.node, self.settings.places, labels)

    async def _read_pod(self, namespace: str, name: str) -> LocalPod | None:
        call = Call("get", "pods", f"/api/v1/namespaces/{namespace}/pods/{name}")
        body = await read_one(self._edges.client, call, LocalPodBody)
        return None if body is None else read_local_pod(self._reader, body)

    @property
    def annotations(self) -> Mapping[str, str]:
        """How the agent works on this node, as an annotation of the Node."""
        facts = {
            "identity": self.identity.value,
            "resources": {name: way.value for name, way in sorted(self.plan.ways.items())},
            "runtime": self._edges.version,
            "version": __version__,
        }
        return {AGENT: json.dumps(facts, separators=(",", ":"), sort_keys=True)}

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
            return
        self.unserved.look(found.pod)
        uid = found.pod.uid
        for container in found.containers:
            try:
                if container.id is not None:
                    self._folders.name_container(uid, container.name, container.id)
            except SlicewiseError as error:
                _log.warning("container id not linked", uid=uid, error=str(error))

    async def _sweep(self) -> None:
        # Before the first list, every pod would look deleted.
        await self._pod_informer.synced.wait()
        await self.vcuda_sockets.resume()
        await self.garbage.run(self.settings.sweep_seconds, self._due)


async def run_together(*work: Coroutine[Any, Any, None], stop: asyncio.Event | None = None) -> None:
    """Run all of these until one ends, raising its error, or until told to stop."""
    tasks = [asyncio.create_task(each) for each in work]
    stopping = [] if stop is None else [asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait([*tasks, *stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for each in (*tasks, *stopping):
            each.cancel()
        await asyncio.gather(*tasks, *stopping, return_exceptions=True)
