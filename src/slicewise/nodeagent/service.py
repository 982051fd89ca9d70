"""The agent put together: what it follows, what it answers, and what it cleans up."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slicewise import __version__
from slicewise.dialects import (
    AGENT,
    AMOUNTS,
    DEFAULT,
    GPUSHARE,
    GPUSHARE_MIB,
    KEYS,
    Dialects,
)
from slicewise.dialects.offers import Edition, Resource, build_editions
from slicewise.kube.client import Call, Client
from slicewise.kube.events import Events
from slicewise.kube.listing import read_one
from slicewise.kube.localpods import LocalPod, LocalPodBody, local_pods, read_local_pod
from slicewise.kube.nodepatch import EVERYTHING
from slicewise.kube.objects import Keep, ObjectReader
from slicewise.kube.sources import one_node
from slicewise.kube.watch import Change, Informer, Seen
from slicewise.kube.writes import Writes
from slicewise.kubelet.plugin import Offer, Plugin, Servant
from slicewise.kubelet.registering import Registrar
from slicewise.model import NodeNotice, SlicewiseError
from slicewise.nodeagent.cdi import Specs
from slicewise.nodeagent.census import NodeCensus
from slicewise.nodeagent.exchanging import Exchange
from slicewise.nodeagent.flagging import Flags
from slicewise.nodeagent.granting import Desk, Given, LateServant, Starts
from slicewise.nodeagent.identity import Holders, Owners, Turns
from slicewise.nodeagent.inventory import Inventory
from slicewise.nodeagent.layout import PodFolders
from slicewise.nodeagent.limiting import Containers, Limiters
from slicewise.nodeagent.matches import Matches
from slicewise.nodeagent.matching import EarlyServant, Table
from slicewise.nodeagent.offering import list_units, plan_offers
from slicewise.nodeagent.outfit import Host, Outfitter
from slicewise.nodeagent.pods import NodePods
from slicewise.nodeagent.promises import Promises, Setting
from slicewise.nodeagent.reconciling import Premises, Reconciler
from slicewise.nodeagent.settings import AgentSettings, Identity
from slicewise.nodeagent.uncarried import Complaints
from slicewise.nodeagent.vendor import VendorSpecs

_log = logging.getLogger(__name__)
COMPONENT: Final = "slicewise-agent"
_CGPU: Final = "cgpu."
# Without CDI an admission waits for a record, and every other admission waits for it.
_ADMISSION_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Edges:
    """The world as the agent reaches it."""

    client: Client
    holders: Holders
    turns: Turns | None = None
    runtime: str = ""
    containers: Containers | None = None


class Agent:
    """One agent on one node; `run` lives until it is cancelled."""

    def __init__(self, settings: AgentSettings, inventory: Inventory, edges: Edges) -> None:
        self.settings = settings
        self.inventory = inventory
        self.pods = NodePods()
        self.census = NodeCensus(settings.node, self._dialects())
        self.editions = build_editions(settings.dialects, share_unit=settings.share_unit)
        self.plan = plan_offers(self.editions, inventory.node, most_units=settings.most_units)
        self._edges = edges
        self.identity = settings.identity or Identity.CDI
        self.starts = Starts()
        reader = ObjectReader(Keep((*KEYS, _CGPU), KEYS, AMOUNTS))
        self._reader = reader
        self.writes = Writes(edges.client, reader)
        self.flags = Flags(self.writes)
        self.events = Events(edges.client, COMPONENT)
        self.complaints = Complaints(self.plan, self.events)
        self._due = asyncio.Event()
        self.notice: NodeNotice | None = None
        """The Node as it was last heard of."""
        self._build_desk()
        self.plugins = tuple(self._build_plugin(*each) for each in self.plan.devices)
        self.registrar = Registrar(settings.paths.plugins, self.plugins)
        self._follow(reader)
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
        """The resources that stand on the Node, for no device plugin carries them."""
        return self.plan.extended(self.inventory.node)

    @property
    def resources(self) -> frozenset[str]:
        """The resources whose units the kubelet hands out."""
        return frozenset(resource.name for _, resource in self.plan.devices)

    async def run(self) -> None:
        """Serve until cancelled, then stop cleanly."""
        _log.info(
            "agent serving node=%s identity=%s runtime=%r gpus=%d resources=%s",
            self.settings.node,
            self.identity.value,
            self._edges.runtime,
            len(self.inventory.node.gpus),
            ",".join(f"{name}:{way.value}" for name, way in self.plan.ways.items()),
        )
        # Nothing is being written yet, so what is half written was left by an agent that died.
        await asyncio.to_thread(self.desk.specs.sweep)
        try:
            async with _together(
                self.registrar.run(),
                self._pod_informer.run(),
                self._node_informer.run(),
                self.events.run(),
                self._sweep(),
            ) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            await self.flags.drain()
            await self.limiters.close()

    def _build_desk(self) -> None:
        settings, edges = self.settings, self._edges
        paths = settings.paths
        specs, folders = Specs(paths.cdi), PodFolders(Path(settings.places.pods))
        matches = Matches(paths.state / "matched")
        owners = Owners(
            self.pods,
            edges.holders,
            paths.plugins,
            turns=edges.turns,
            wait_seconds=settings.watch_seconds,
        )
        promises = Promises(
            self._dialects(),
            self.pods,
            self._setting,
            read_pod=self._read_pod,
            wait_seconds=settings.record_seconds,
        )
        host = Host(paths.dev, settings.require_gpus, self.inventory.hardware.driver)
        outfitter = Outfitter(host, VendorSpecs(paths.vendor_cdi), folders)
        self.desk = Desk(owners, promises, outfitter, specs, self.starts, given=self._given)
        self.limiters = Limiters(self.pods, folders, edges.containers)
        self.reconciler = Reconciler(
            self.pods,
            edges.holders,
            Premises(specs, folders, paths.dev, matches),
            forgetters=(
                owners.forget,
                matches.forget,
                self.flags.forget,
                self.complaints.forget,
                self.limiters.forget,
            ),
        )
        self._folders = folders
        exchange = Exchange(self.pods, promises, matches, self.writes)
        self._table = Table(
            self.pods,
            edges.holders,
            matches,
            exchange,
            folders,
            min(settings.record_seconds, _ADMISSION_SECONDS),
        )

    def _dialects(self) -> Dialects:
        """Every dialect, with gpushare in the unit of this node."""
        if self.settings.share_unit == GPUSHARE.names.memory_unit:
            return DEFAULT
        return Dialects(
            tuple(GPUSHARE_MIB if each is GPUSHARE else each for each in DEFAULT.dialects)
        )

    def _build_plugin(self, edition: Edition, resource: Resource) -> Plugin:
        servant = self._build_servant(edition, resource)
        offer = Offer(resource.name, resource.socket, pre_start=resource.carries)
        return Plugin(self.settings.paths.plugins, offer, servant)

    def _build_servant(self, edition: Edition, resource: Resource) -> Servant:
        if self.identity is Identity.MATCH:
            return EarlyServant(edition, resource, self.desk, self._table)
        return LateServant(edition, resource, self.desk)

    def _follow(self, reader: ObjectReader) -> None:
        client, node = self._edges.client, self.settings.node
        # Whoever publishes compares every key of the Node.
        whole = ObjectReader(EVERYTHING)
        self._pod_informer = Informer(client, local_pods(reader, node), self._pods_changed)
        self._node_informer = Informer(client, one_node(whole, node), self._node_changed)

    def _setting(self) -> Setting:
        labels = {} if self.notice is None else dict(self.notice.labels)
        return Setting(self.inventory.node, self.settings.places, labels)

    async def _read_pod(self, namespace: str, name: str) -> LocalPod | None:
        call = Call("get", "pods", f"/api/v1/namespaces/{namespace}/pods/{name}")
        body = await read_one(self._edges.client, call, LocalPodBody)
        return None if body is None else read_local_pod(self._reader, body)

    @property
    def annotations(self) -> Mapping[str, str]:
        """How the agent works here, for the Node to say."""
        facts = {
            "identity": self.identity.value,
            "resources": {name: way.value for name, way in sorted(self.plan.ways.items())},
            "runtime": self._edges.runtime,
            "version": __version__,
        }
        return {AGENT: json.dumps(facts, separators=(",", ":"), sort_keys=True)}

    def _pods_changed(self, changes: Sequence[Change[LocalPod]]) -> None:
        self.census.apply(changes)
        self.pods.take(changes)

    def _node_changed(self, changes: Sequence[Change[NodeNotice]]) -> None:
        for change in changes:
            self.notice = change.value if isinstance(change, Seen) else None

    def _gpus_changed(self) -> None:
        hardware = self.inventory.hardware
        self.census.set_gpus(hardware.gpus, hardware.links)
        node = self.inventory.node
        resources = {resource.name: resource for _, resource in self.plan.devices}
        for plugin in self.plugins:
            resource = resources[plugin.offer.resource]
            plugin.publish(node.gpus, lambda each=resource: list_units(each, self.inventory.node))  # type: ignore[misc]

    async def _given(self, given: Given) -> None:
        if given.injection.limit is not None:
            try:
                await self.limiters.serve(given.promise.pod.uid)
            except SlicewiseError as error:
                # Only the original's library needs the socket, and few containers have it.
                _log.warning("limiter not served uid=%s error=%s", given.promise.pod.uid, error)
        self.flags.hear(given)

    def _pod_changed(self, found: LocalPod | None) -> None:
        if found is None:
            self._due.set()
            return
        self.complaints.look(found.pod)
        for container in found.containers:
            if container.id is not None:
                self._name_container(found.pod.uid, container.name, container.id)

    def _name_container(self, uid: str, container: str, identity: str) -> None:
        try:
            self._folders.name_container(uid, container, identity)
        except SlicewiseError as error:
            _log.warning("container not linked uid=%s error=%s", uid, error)

    async def _sweep(self) -> None:
        # Before the first list, every pod would look as if it were gone.
        await self._pod_informer.synced.wait()
        await self.limiters.resume()
        await self.reconciler.run(self.settings.sweep_seconds, self._due)


@contextlib.asynccontextmanager
async def _together(*work: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that live while the block does."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
