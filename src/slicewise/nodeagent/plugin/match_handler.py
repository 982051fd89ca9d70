"""Answering the kubelet for one resource where the runtime knows no CDI.

The answer at admission brings the GPUs, before anybody says whose it is. The kubelet's own list
shows the pod that is being admitted: it is there and holds nothing yet. Before the start the
owner is known for certain, and a container that was given another's answer does not start on it:
the two exchange their promises where those are equal in size, and otherwise it is held back.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Final

import structlog

from slicewise.dialects.shared.injection import Injection
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.holders import Holder
from slicewise.kubelet.v1beta1 import ContainerAllocateResponse
from slicewise.model import Container, SlicewiseError
from slicewise.nodeagent.limits.vcuda_files import VcudaFolders
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import PodAllocation
from slicewise.nodeagent.plugin.cdi import name_units
from slicewise.nodeagent.plugin.cdi_handler import (
    AllocationServices,
    StartedContainer,
    fixed_annotations,
)
from slicewise.nodeagent.plugin.containers import UnitHolders, amount
from slicewise.nodeagent.plugin.exchange import AllocationExchange
from slicewise.nodeagent.plugin.match_store import AdmissionMatch, MatchStore

_log = structlog.get_logger(__name__)
_LIST_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class AdmissionCandidate:
    """A container that may be the one that is being admitted."""

    promise: PodAllocation
    container: Container


@dataclass(frozen=True, slots=True)
class MatchServices:
    """What matching needs beside the desk, shared by all resources."""

    pods: NodePods
    holders: UnitHolders
    matches: MatchStore
    exchange: AllocationExchange
    folders: VcudaFolders
    wait_seconds: float


class MatchHandler:
    """Chooses at admission and verifies before the start."""

    def __init__(
        self,
        edition: OfferedEdition,
        resource: OfferedResource,
        desk: AllocationServices,
        table: MatchServices,
    ) -> None:
        self._edition = edition
        self._resource = resource
        self._desk = desk
        self._table = table

    async def allocate(self, ids: tuple[str, ...]) -> ContainerAllocateResponse:
        """What the container that is being admitted receives, as far as can be told."""
        resource = self._resource
        if not resource.carries:
            return ContainerAllocateResponse(annotations=fixed_annotations(resource, len(ids)))
        chosen = await self._choose(len(ids))
        units, name = frozenset(ids), name_units(resource.name, ids)
        try:
            answer = self._answer(chosen.promise, chosen.container, units)
            slices = chosen.promise.allocation.slices_of(chosen.container.name)
            self._table.matches.put(
                name,
                AdmissionMatch(
                    chosen.promise.pod.uid,
                    chosen.container.name,
                    resource.name,
                    tuple((piece.gpu, piece.cores, piece.memory) for piece in slices),
                ),
            )
        except SlicewiseError as error:
            raise DeniedError(f"slicewise: {error}") from error
        return answer

    async def pre_start(self, ids: tuple[str, ...]) -> None:
        """The container that holds these units may start: what it was given is its own."""
        began = time.perf_counter()
        units = frozenset(ids)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                given = await self._verify(units)
        except TimeoutError as error:
            raise self._deny("no answer in time; trying again") from error
        except SlicewiseError as error:
            raise self._deny(str(error)) from error
        self._desk.starts.granted += 1
        self._desk.starts.seconds += time.perf_counter() - began
        _log.info(
            "container verified",
            container=given.owner.name,
            resource=self._resource.name,
            gpus=",".join(str(gpu.index) for gpu in given.grant.gpus),
        )

    async def _choose(self, count: int) -> AdmissionCandidate:
        """The container that is being admitted, or the likeliest of those that may be."""
        table = self._table
        try:
            listed = await asyncio.wait_for(table.holders.list(), _LIST_SECONDS)
        except (TimeoutError, KubeletError) as error:
            _log.warning("matching without the kubelet's list", error=str(error) or "no answer")
            listed = None

        def look() -> AdmissionCandidate | None:
            found = self._candidates(count, listed)
            return found[0] if found else None

        try:
            chosen = await table.pods.until(look, table.wait_seconds)
        except SlicewiseError as error:
            raise DeniedError(f"slicewise: {error}") from error
        if chosen is None:
            raise DeniedError(
                f"slicewise: no pod of this node is promised {count} of {self._resource.name} "
                "and waits for them; create it again"
            )
        return chosen

    def _candidates(
        self, count: int, listed: tuple[Holder, ...] | None
    ) -> list[AdmissionCandidate]:
        """Containers that ask for so many and were meant by no answer, the likeliest first."""
        table, resource = self._table, self._resource.name
        waiting = None if listed is None else _waiting(listed, resource)
        found = []
        for local in table.pods:
            pod = local.pod
            key = (pod.namespace, pod.name)
            if pod.phase.terminal or (waiting is not None and key not in waiting):
                continue
            open_ones = [
                each
                for each in pod.containers
                if amount(each, resource) == count
                and (waiting is None or each.name not in waiting[key])
                and not table.matches.taken(pod.uid, each.name, resource)
            ]
            if not open_ones:
                continue
            try:
                promise = self._desk.promises.read(local)
            except SlicewiseError as error:
                _log.warning("allocation unreadable", pod="/".join(key), error=str(error))
                continue
            if promise is not None:
                # The kubelet goes through one pod's containers before it looks at the next.
                rank = (not table.matches.begun(pod.uid), table.pods.arrival(pod.uid))
                found.append((rank, AdmissionCandidate(promise, open_ones[0])))
        return [candidate for _, candidate in sorted(found, key=lambda pair: pair[0])]

    async def _verify(self, units: frozenset[str]) -> StartedContainer:
        desk, table, resource = self._desk, self._table, self._resource.name
        name = name_units(resource, units)
        owner = await desk.owners.find(resource, units)
        promise = await desk.promises.wait(owner)
        match = table.matches.find(name, promise.pod.uid, owner.container.name)
        if match is None:
            raise DeniedError(
                f"{owner.name} was admitted by another agent, and what it was given is unknown; "
                "create its pod again"
            )
        if match.held != promise.allocation.slices_of(owner.container.name):
            promise = await table.exchange.settle(owner, promise, match)
        table.matches.settle(name, match, promise.pod.uid, owner.container.name)
        grant = desk.promises.grant(promise, owner.container, resource, units)
        injection = promise.dialect.agent.inject(grant)
        await asyncio.to_thread(desk.outfitter.prepare, grant, injection)
        if injection.limit is not None:
            await asyncio.to_thread(table.folders.alias, name, promise.pod.uid)
        given = StartedContainer(owner, promise, grant, injection)
        await desk.given(given)
        return given

    def _answer(
        self, promise: PodAllocation, container: Container, units: frozenset[str]
    ) -> ContainerAllocateResponse:
        grant = self._desk.promises.grant(promise, container, self._resource.name, units)
        injection = promise.dialect.agent.inject(grant)
        late = self._mount_late(injection, promise, name_units(self._resource.name, units))
        answer = self._desk.outfitter.answer(late)
        return replace(
            answer,
            envs={**self._resource.env, **answer.envs},
            annotations={
                **fixed_annotations(self._resource, len(units)),
                **answer.annotations,
            },
        )

    def _mount_late(self, injection: Injection, promise: PodAllocation, name: str) -> Injection:
        """The same, with the pod's folder by a name that is linked to it before the start."""
        own = f"{self._table.folders.root}/{promise.pod.uid}"
        late = f"{self._table.folders.root}/by-units/{name}"
        mounts = tuple(
            replace(each, source=late) if each.source == own else each for each in injection.mounts
        )
        return replace(injection, mounts=mounts)

    def _deny(self, why: str) -> DeniedError:
        self._desk.starts.held_back += 1
        _log.warning("container held back", resource=self._resource.name, reason=why)
        return DeniedError(f"slicewise: {why}")


def _waiting(listed: tuple[Holder, ...], resource: str) -> dict[tuple[str, str], set[str]]:
    """Every pod the kubelet lists, with its containers that hold some of the resource."""
    waiting: dict[tuple[str, str], set[str]] = {}
    for holder in listed:
        holding = waiting.setdefault((holder.namespace, holder.pod), set())
        if holder.units.get(resource):
            holding.add(holder.container)
    return waiting
