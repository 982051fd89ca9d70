"""Answers the kubelet for one resource where the runtime supports CDI (late binding).

Allocate knows only device ids, so it returns a CDI name whose spec does not exist yet. Before the
container starts it is known for certain which one it is, and the spec is written for it alone.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from slicewise.dialects.shared.injection import ContainerGpus, Injection
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.v1beta1 import CdiDevice, ContainerAllocateResponse
from slicewise.model import SlicewiseError
from slicewise.nodeagent.limits.container_limits import LimitInjector
from slicewise.nodeagent.plugin.allocations import AllocationReader, PodAllocation
from slicewise.nodeagent.plugin.cdi import CdiEdits, CdiSpecs, SpecOwner, full_name, name_units
from slicewise.nodeagent.plugin.containers import ContainerRef, ContainerResolver
from slicewise.nodeagent.plugin.edits import EditsBuilder
from slicewise.nodeagent.plugin.grant_book import name_slices
from slicewise.nodeagent.plugin.refusals import StartRefusals, StartRefusedError
from slicewise.nodeagent.plugin.start_gate import StartGate

_log = structlog.get_logger(__name__)
# The kubelet times out after 30 s, and its own message says less than ours.
_START_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A container that is about to start with its GPUs."""

    ref: ContainerRef
    pod_allocation: PodAllocation
    container_gpus: ContainerGpus
    injection: Injection


@dataclass(slots=True)
class StartCounts:
    """How container starts have ended so far, and how long the granted ones took."""

    granted: int = 0
    held_back: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocationServices:
    """What handlers need, shared by all resources."""

    containers: ContainerResolver
    allocations: AllocationReader
    builder: EditsBuilder
    specs: CdiSpecs
    starts: StartCounts
    gate: StartGate
    refusals: StartRefusals
    on_start: Callable[[StartedContainer], Awaitable[None]]
    """Called for every container before it may start."""
    limits: LimitInjector | None = None
    """What keeps containers within their shares; none where nothing does."""

    def inject(self, held: PodAllocation, gpus: ContainerGpus) -> Injection:
        """What the container receives with its GPUs, its limits included."""
        injection = held.dialect.agent.inject(gpus)
        return injection if self.limits is None else self.limits.extend(gpus, injection)

    def prepare(self, gpus: ContainerGpus, injection: Injection) -> None:
        """Links, folders and files that the container's view of the host relies on."""
        self.builder.prepare(gpus, injection)
        if self.limits is not None:
            self.limits.prepare(gpus, injection)

    def describe_start(
        self, ref: ContainerRef, held: PodAllocation, resource: str, units: frozenset[str]
    ) -> StartedContainer:
        gpus = self.allocations.container_gpus(held, ref.container, resource, units)
        return StartedContainer(ref, held, gpus, self.inject(held, gpus))


class StartHandler(ABC):
    """What both handlers do alike: hold a start until the container's GPUs are prepared."""

    def __init__(
        self, edition: OfferedEdition, resource: OfferedResource, services: AllocationServices
    ) -> None:
        self._edition = edition
        self._resource = resource
        self._services = services

    async def pre_start(self, ids: tuple[str, ...]) -> None:
        """Return once the container that holds these units may start with its own GPUs."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(_START_SECONDS):
                started = await self._prepare(frozenset(ids))
        except TimeoutError as error:
            raise self._deny("no answer in time; trying again") from error
        except SlicewiseError as error:
            if isinstance(error, StartRefusedError):
                self._services.refusals.hear(error)
            raise self._deny(str(error)) from error
        seconds = time.perf_counter() - began
        self._services.starts.granted += 1
        self._services.starts.seconds += seconds
        pod = started.pod_allocation.pod
        _log.info(
            "container granted",
            pod=f"{pod.namespace}/{pod.name}",
            container=started.ref.container.name,
            resource=self._resource.name,
            gpus=",".join(str(gpu.index) for gpu in started.container_gpus.gpus),
            seconds=round(seconds, 4),
        )

    @abstractmethod
    async def _prepare(self, units: frozenset[str]) -> StartedContainer:
        """Find the container that holds these units, and put its GPUs in place."""

    def _deny(self, why: str) -> DeniedError:
        self._services.starts.held_back += 1
        _log.warning("container held back", resource=self._resource.name, reason=why)
        return DeniedError(f"slicewise: {why}")


class CdiHandler(StartHandler):
    """Returns a CDI name at admission and writes its spec before the start."""

    async def allocate(self, ids: tuple[str, ...]) -> ContainerAllocateResponse:
        """A CDI name for these units, and what does not depend on the container."""
        if not ids:
            raise DeniedError(f"{self._resource.name}: no units were named")
        annotations = fixed_annotations(self._resource, len(ids))
        if not self._resource.carries:
            return ContainerAllocateResponse(annotations=annotations)
        name = name_units(self._resource.name, ids)
        return ContainerAllocateResponse(
            envs=dict(self._resource.env),
            annotations=annotations,
            cdi_devices=(CdiDevice(full_name(name)),),
        )

    async def _prepare(self, units: frozenset[str]) -> StartedContainer:
        services, resource = self._services, self._resource.name
        ref = await services.containers.find(resource, units)
        pod_allocation = await services.allocations.wait(ref)
        async with services.gate.admitted(pod_allocation, ref.container):
            started = services.describe_start(ref, pod_allocation, resource, units)
            # Written off the event loop: a slow disk delays this container alone.
            await asyncio.to_thread(self._describe, started)
        await services.on_start(started)
        return started

    def _describe(self, started: StartedContainer) -> None:
        builder, gpus, injection = self._services.builder, started.container_gpus, started.injection
        self._services.prepare(gpus, injection)
        edits = builder.edits(gpus, injection)
        if self._edition.carrier(gpus.container) != gpus.resource:
            # Another resource carries the rest.
            edits = CdiEdits(env=edits.env, version=edits.version)
        pod = f"{gpus.pod.namespace}/{gpus.pod.name}"
        links = tuple(each.name for each in injection.links)
        granted = name_slices(gpus.slices, gpus.node)
        owner = SpecOwner(gpus.pod.uid, pod, gpus.container.name, gpus.resource, links, granted)
        self._services.specs.write(name_units(gpus.resource, gpus.ids), owner, edits)


def fixed_annotations(resource: OfferedResource, count: int) -> dict[str, str]:
    """The annotations for so many units, whichever container holds them."""
    unit = resource.annotation_unit
    return {} if unit is None else {resource.name: str(count * unit)}
