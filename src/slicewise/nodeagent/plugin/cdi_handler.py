"""Answering the kubelet for one resource where the runtime knows CDI.

At admission nothing is known but ids, so a name is returned that nobody has described yet. Before
the container starts its owner is known for certain, and the name is described for it alone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from slicewise.dialects.shared.injection import ContainerGpus, Injection
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.v1beta1 import CdiDevice, ContainerAllocateResponse
from slicewise.model import SlicewiseError
from slicewise.nodeagent.plugin.allocations import AllocationReader, PodAllocation
from slicewise.nodeagent.plugin.cdi import CdiSpecs, SpecOwner, full_name, name_units
from slicewise.nodeagent.plugin.containers import ContainerRef, ContainerResolver
from slicewise.nodeagent.plugin.edits import EditsBuilder, only_env

_log = structlog.get_logger(__name__)
# The kubelet gives up after 30 s, and its own words say less than ours.
_PATIENCE_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A container that is about to start with its GPUs."""

    owner: ContainerRef
    promise: PodAllocation
    grant: ContainerGpus
    injection: Injection


@dataclass(slots=True)
class StartCounts:
    """How starts have ended so far, and how long granted ones were held up."""

    granted: int = 0
    held_back: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocationServices:
    """Everything that answering needs, shared by all resources."""

    owners: ContainerResolver
    promises: AllocationReader
    outfitter: EditsBuilder
    specs: CdiSpecs
    starts: StartCounts
    given: Callable[[StartedContainer], Awaitable[None]]
    """Hears of every container before it may start."""


class CdiHandler:
    """Names units at admission and describes them before the start."""

    def __init__(
        self, edition: OfferedEdition, resource: OfferedResource, desk: AllocationServices
    ) -> None:
        self._edition = edition
        self._resource = resource
        self._desk = desk

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

    async def pre_start(self, ids: tuple[str, ...]) -> None:
        """The container that holds these units may start: its own GPUs are described."""
        began = time.perf_counter()
        units = frozenset(ids)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                given = await self._give(units)
        except TimeoutError as error:
            raise self._deny("no answer in time; trying again") from error
        except SlicewiseError as error:
            raise self._deny(str(error)) from error
        seconds = time.perf_counter() - began
        self._desk.starts.granted += 1
        self._desk.starts.seconds += seconds
        pod = given.promise.pod
        _log.info(
            "container granted",
            pod=f"{pod.namespace}/{pod.name}",
            container=given.owner.container.name,
            resource=self._resource.name,
            gpus=",".join(str(gpu.index) for gpu in given.grant.gpus),
            seconds=round(seconds, 4),
        )

    async def _give(self, units: frozenset[str]) -> StartedContainer:
        desk, resource = self._desk, self._resource.name
        owner = await desk.owners.find(resource, units)
        promise = await desk.promises.wait(owner)
        grant = desk.promises.grant(promise, owner.container, resource, units)
        injection = promise.dialect.agent.inject(grant)
        given = StartedContainer(owner, promise, grant, injection)
        # Files are written beside the loop: a slow disk holds up this container alone.
        await asyncio.to_thread(self._describe, given)
        await desk.given(given)
        return given

    def _describe(self, given: StartedContainer) -> None:
        desk, grant = self._desk, given.grant
        desk.outfitter.prepare(grant, given.injection)
        edits = desk.outfitter.edits(grant, given.injection)
        if self._edition.carrier(grant.container) != grant.resource:
            edits = only_env(edits)
        desk.specs.write(name_units(grant.resource, grant.ids), spec_owner(given), edits)

    def _deny(self, why: str) -> DeniedError:
        self._desk.starts.held_back += 1
        _log.warning("container held back", resource=self._resource.name, reason=why)
        return DeniedError(f"slicewise: {why}")


def spec_owner(given: StartedContainer) -> SpecOwner:
    """Whose a spec is."""
    pod = given.promise.pod
    return SpecOwner(
        pod.uid,
        f"{pod.namespace}/{pod.name}",
        given.owner.container.name,
        given.grant.resource,
        tuple(link.name for link in given.injection.links),
    )


def fixed_annotations(resource: OfferedResource, count: int) -> dict[str, str]:
    """What the runtime is told of so many units, whoever has them."""
    return (
        {}
        if resource.annotation_unit is None
        else {resource.name: str(count * resource.annotation_unit)}
    )
