"""GPUs by ResourceClaim on one node: published, prepared, counted, and their pods hurried along."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from slicewise.dialects.shared.publication import NodeFacts
from slicewise.kube.client import Client
from slicewise.kube.dra.claims import find_claim
from slicewise.kube.dra.slices import SliceClient, SliceDevice, one_slice
from slicewise.kube.local_pods import LocalPod
from slicewise.kube.pod_writer import PodWriter
from slicewise.kube.watch import Informer
from slicewise.kubelet.dra_messages import DeviceHealth
from slicewise.kubelet.dra_plugin import DraFolders, DraPlugin
from slicewise.model import Pod, PodRecord
from slicewise.model.claim import DRIVER
from slicewise.model.grants import PodGrants
from slicewise.nodeagent.claims.claim_handler import ClaimPreparer
from slicewise.nodeagent.claims.claim_limits import ClaimLimits
from slicewise.nodeagent.claims.claim_store import ClaimStore
from slicewise.nodeagent.claims.devices import (
    close_devices,
    list_devices,
    list_health,
    share_devices,
)
from slicewise.nodeagent.claims.nudges import NUDGED, KubeletNudger
from slicewise.nodeagent.claims.slice_publisher import SlicePublisher
from slicewise.nodeagent.gpus.gpu_watch import GpuInventory
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.edits import EditsBuilder
from slicewise.nodeagent.settings import ClaimsMode

REPAIR_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ClaimParts:
    """What serving claims needs of the rest of the agent."""

    inventory: GpuInventory
    facts: Callable[[], NodeFacts | None]
    """The GPUs as they are published, with health and cordons."""
    builder: EditsBuilder
    others: Callable[[], Iterable[PodGrants]]
    """What pods without claims hold."""
    obstacle: Callable[[], Awaitable[str | None]]
    """Why the node's GPUs must not be offered to claims now."""
    writes: PodWriter
    changed: Callable[[], None]
    """Called when what the Node says of claims is no longer true."""
    pods: NodePods
    """The pods of the node."""
    limits: ClaimLimits | None = None
    """What keeps containers within their shares; none limits nobody."""
    evict: bool = False
    """Whether pods with claims are deleted from GPUs that become unhealthy."""


class ClaimService:
    """Serves claims while it runs; where they are off, only those that were prepared before."""

    def __init__(
        self,
        client: Client,
        folders: DraFolders,
        store: ClaimStore,
        parts: ClaimParts,
        *,
        mode: ClaimsMode,
    ) -> None:
        self.store = store
        self.offered = mode is not ClaimsMode.OFF
        self._mode = mode
        self._parts = parts
        self._node = parts.inventory.node.name
        find = partial(find_claim, client)
        self.preparer = ClaimPreparer(
            store,
            parts.builder,
            lambda: parts.inventory.node,
            find=find,
            others=parts.others,
        )
        if parts.limits is not None:
            self.preparer.limits = parts.limits, parts.pods
        self.plugin = DraPlugin(DRIVER, folders, self.preparer, self._health)
        self.nudger = KubeletNudger(find=find, prepared=store.__contains__, touch=self._touch)
        self.plugin.on_registered = self.nudger.hurry
        self.publisher = SlicePublisher(
            SliceClient(client, self._node),
            self._devices,
            obstacle=parts.obstacle,
            changed=parts.changed,
        )
        self._slices = Informer(client, one_slice(self._node), self.publisher.slice_changed)
        parts.inventory.listen(self._gpus_changed)

    @property
    def unready(self) -> str | None:
        """Why claims cannot be served as they should; None when they can."""
        if not self.offered:
            return None
        if not self.plugin.registered:
            return f"the kubelet does not know the DRA driver {DRIVER} yet"
        return self.publisher.problem

    @property
    def told(self) -> str:
        """What the Node says of claims: how GPUs are given to them, or why they are not."""
        return self.publisher.problem or self._mode.value

    def grants(self) -> Iterator[PodGrants]:
        """What prepared claims hold."""
        return self.preparer.grants()

    def hear(self, pod: LocalPod) -> None:
        """Take over how a pod of the node is now."""
        if self.offered:
            self.nudger.hear(pod)
            self.publisher.wake()

    def forget(self, living: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        self.nudger.forget(living)
        self.publisher.wake()

    def wake(self) -> None:
        """Publish soon what has changed of the GPUs."""
        self.publisher.wake()

    async def run(self) -> None:
        """Serve until cancelled."""
        await asyncio.to_thread(self.store.repair)
        work = [self.plugin.run(), self._repair()]
        if self.offered:
            work += [self.publisher.run(), self._slices.run(), self.nudger.run()]
        await asyncio.gather(*work)

    async def _repair(self) -> None:
        while True:
            await asyncio.sleep(REPAIR_SECONDS)
            await asyncio.to_thread(self.store.repair)

    def _devices(self) -> tuple[SliceDevice, ...] | None:
        facts = self._parts.facts()
        if facts is None:
            return None
        devices = list_devices(self._parts.inventory.hardware, facts, evict=self._parts.evict)
        if not self._mode.shares:
            return devices
        shared = share_devices(devices, facts.node, self._parts.others())
        return close_devices(shared) if self._mode is ClaimsMode.ENGINE else shared

    def _health(self) -> tuple[DeviceHealth, ...]:
        facts = self._parts.facts()
        troubles = {} if facts is None else facts.troubles
        gpus = self._parts.inventory.node.gpus
        return list_health(self._node, gpus, troubles, int(time.time()))

    def _gpus_changed(self) -> None:
        self.plugin.health_changed()
        self.publisher.wake()

    async def _touch(self, pod: Pod) -> None:
        mark = PodRecord({NUDGED: str(time.time_ns() // 1_000_000)})
        await self._parts.writes.annotate_pod(pod, mark)
