"""Follows the node's GPUs: reads the driver, judges health, scales memory.

The driver is called in a thread, so that a slow one blocks nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import structlog

from slicewise.dialects.shared.inventory import GPUS, cordon_gpus, read_gpus
from slicewise.dialects.shared.publication import NodeFacts
from slicewise.model import (
    NOT_ISOLATED,
    DialectError,
    InventoryError,
    MiB,
    Node,
    NodeNotice,
    OfferedIsolation,
)
from slicewise.nodeagent.gpus.health import GpuHealthTracker, HealthChange
from slicewise.nvml.driver import Driver, DriverError, GpuDevice, GpuFault, Hardware

_log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 5.0
_MOMENT: Final = 1.0
WHOLE: Final = Fraction(1)


class GpuInventory:
    """What the driver said last, with every GPU's health as it is judged."""

    def __init__(self, name: str, hardware: Hardware) -> None:
        self._name = name
        self.hardware = hardware
        self.node = Node(name)
        self._listeners: list[Callable[[], None]] = []
        self.take(hardware)

    def listen(self, hear: Callable[[], None]) -> None:
        """Call this after every change."""
        self._listeners.append(hear)

    def take(self, hardware: Hardware) -> None:
        """Take over what the driver lists now."""
        node = Node(self._name, tuple(device.gpu for device in hardware.gpus), hardware.links)
        changed = node != self.node
        self.hardware, self.node = hardware, node
        if changed:
            for hear in self._listeners:
                hear()


def scale_gpu(device: GpuDevice, scaling: Fraction) -> GpuDevice:
    """The GPU with only so much of its memory, at least one MiB."""
    if scaling == WHOLE:
        return device
    memory = MiB(max(1, int(device.gpu.memory * scaling)))
    return replace(device, gpu=replace(device.gpu, memory=memory))


class GpuWatch:
    """Follows the GPUs of one node; `hardware` and `facts` are None before the first look."""

    def __init__(
        self,
        driver: Driver,
        node: str,
        *,
        health: GpuHealthTracker | None = None,
        scaling: Fraction = WHOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._node = node
        self._health = health or GpuHealthTracker()
        self._scaling = scaling
        self.tiers: Callable[[GpuDevice, str], OfferedIsolation] | None = None
        """Which isolation a GPU offers under a driver; set before the first look."""
        self.claims = False
        """Whether the GPUs are given out by ResourceClaims alone."""
        self.shared = False
        """Whether they are given out by ResourceClaims and by resource names."""
        self._clock = clock
        self._notice = NodeNotice(node)
        self._failing: str | None = None
        self._listed: Hardware | None = None
        self.hardware: Hardware | None = None
        """What the driver listed, judged and scaled, in index order."""
        self.facts: NodeFacts | None = None
        """The same for publishing, with the GPUs that are cordoned."""

    def resume(self, notice: NodeNotice) -> None:
        """Keep the GPUs out of service that were unhealthy before the agent restarted."""
        text = notice.annotations.get(GPUS)
        try:
            published = () if text is None else read_gpus(self._node, text).gpus
        except (DialectError, InventoryError) as error:
            _log.warning("earlier GPU health unreadable", error=str(error))
            published = ()
        self._health.resume(published, self._clock())
        self.follow(notice)

    def follow(self, notice: NodeNotice) -> None:
        """Take over which GPUs are cordoned."""
        self._notice = notice
        if self._listed is not None:
            self._settle(self._listed)

    def look(self, faults: Sequence[GpuFault] = ()) -> NodeFacts:
        """Read and judge the GPUs now; blocks on the driver."""
        hardware = self._driver.hardware()
        now = self._clock()
        changes = self._health.hear(faults, hardware.gpus, now)
        changes += self._health.judge(hardware.gpus, now)
        self._log(changes, hardware.gpus)
        self._listed = hardware
        return self._settle(hardware)

    async def run(
        self, tell: Callable[[NodeFacts], Awaitable[object]], look_seconds: float = LOOK_SECONDS
    ) -> None:
        """Look until cancelled, immediately after a fault, and call `tell` each time."""
        faults: Sequence[GpuFault] = ()
        while True:
            try:
                facts = await asyncio.to_thread(self.look, faults)
                if self._failing is not None:
                    self._failing = None
                    _log.info("GPUs known again", node=self._node)
                await tell(facts)
                faults = ()
                # Not before a moment has passed, for GPUs with no quiet period are always due.
                pause = min(look_seconds, max(_MOMENT, self._health.due(self._clock())))
                faults = await asyncio.to_thread(self._driver.wait_faults, pause)
            except (DriverError, InventoryError) as error:
                self._fail(str(error))
                await asyncio.sleep(min(look_seconds, _MOMENT))

    def _settle(self, listed: Hardware) -> NodeFacts:
        gpus = tuple(
            self._offer(scale_gpu(device, self._scaling), listed.driver)
            for device in self._health.apply(listed.gpus)
        )
        node = Node(self._node, tuple(device.gpu for device in gpus), listed.links)
        self.hardware = replace(listed, gpus=gpus)
        self.facts = NodeFacts(
            cordon_gpus(node, self._notice),
            tuple(device.capability for device in gpus),
            listed.driver,
            listed.cuda,
            {device.gpu.uuid: device.trouble for device in gpus if device.trouble},
        )
        return self.facts

    def _offer(self, device: GpuDevice, driver: str) -> GpuDevice:
        """The GPU with the isolation it offers, and whom it is offered to."""
        offered = NOT_ISOLATED if self.tiers is None else self.tiers(device, driver)
        gpu = replace(device.gpu, isolation=offered, claims=self.claims, shared=self.shared)
        return replace(device, gpu=gpu)

    def _fail(self, problem: str) -> None:
        if problem != self._failing:
            self._failing = problem
            _log.error("GPUs unknown", error=problem)

    def _log(self, changes: Sequence[HealthChange], gpus: Sequence[GpuDevice]) -> None:
        indexes = {device.gpu.uuid: device.gpu.index for device in gpus}
        for change in changes:
            phrase = "GPU returned" if change.healthy else "GPU unhealthy"
            index = indexes.get(change.uuid)
            _log.warning(phrase, gpu=index, uuid=change.uuid, reason=change.reason)
