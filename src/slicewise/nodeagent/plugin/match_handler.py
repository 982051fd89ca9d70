"""Answers the kubelet for one resource where the runtime does not support CDI.

Allocate must already bring the GPUs, without naming the container. The kubelet's own list
shows the pod that is being admitted: it is there and holds nothing yet. Before the start the
container is known for certain, and one that received another's answer does not start on it: the
two exchange their allocations where those are equal in size, and otherwise it is held back.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import structlog

from slicewise.dialects.shared.injection import Injection
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kube.pod_writer import PodWriter
from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.holders import Holder, PodResourcesClient
from slicewise.kubelet.v1beta1 import ContainerAllocateResponse
from slicewise.model import Allocation, Container, ContainerAllocation, Slice, SlicewiseError
from slicewise.nodeagent.limits.vcuda import VcudaFolders
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import AllocationReader, PodAllocation
from slicewise.nodeagent.plugin.cdi import name_units
from slicewise.nodeagent.plugin.cdi_handler import (
    AllocationServices,
    StartedContainer,
    StartHandler,
    fixed_annotations,
)
from slicewise.nodeagent.plugin.containers import ContainerRef, amount
from slicewise.nodeagent.plugin.match_store import AdmissionMatch, MatchStore

_log = structlog.get_logger(__name__)
_LIST_SECONDS: Final = 2.0


class AllocationExchange:
    """Repairs mismatches by rewriting the records of both pods.

    Nothing is taken from anybody: each keeps the GPUs its answer brought, both records say so, and
    every GPU is allocated as much as before.
    """

    def __init__(
        self,
        pods: NodePods,
        allocations: AllocationReader,
        matches: MatchStore,
        writer: PodWriter,
        *,
        wait_seconds: float = 5.0,
    ) -> None:
        self._pods = pods
        self._allocations = allocations
        self._matches = matches
        self._writer = writer
        self._wait_seconds = wait_seconds

    async def settle(
        self, ref: ContainerRef, pod_allocation: PodAllocation, match: AdmissionMatch
    ) -> PodAllocation:
        """The pod's allocation once its record says what the container received; else denied."""
        container, held = ref.container.name, match.held
        wanted = pod_allocation.allocation.slices_of(container)
        other = next(self._partners(pod_allocation, container, held), None)
        if other is None or not _equal(wanted, held):
            raise DeniedError(
                f"{ref.name} received the GPUs of another pod ({_name_gpus(held)}) and is "
                f"allocated {_name_gpus(wanted)}; it does not start on them, create its pod again"
            )
        partner, theirs = other
        _log.warning(
            "allocations exchanged",
            container=ref.name,
            partner=f"{partner.pod.namespace}/{partner.pod.name}/{theirs}",
        )
        if partner.pod.uid == pod_allocation.pod.uid:
            both = _put(_put(pod_allocation.allocation, theirs, wanted), container, held)
            return await self._record(pod_allocation, both)
        await self._record(partner, _put(partner.allocation, theirs, wanted))
        return await self._record(pod_allocation, _put(pod_allocation.allocation, container, held))

    def _partners(
        self, pod_allocation: PodAllocation, container: str, held: tuple[Slice, ...]
    ) -> Iterator[tuple[PodAllocation, str]]:
        """Containers that are allocated exactly these slices, ask alike, and have not started."""
        for local in self._pods:
            if local.pod.phase.terminal:
                continue
            try:
                other = self._allocations.read(local)
            except SlicewiseError:
                continue
            if other is None or other.request.constraints != pod_allocation.request.constraints:
                continue
            started = {each.name for each in local.containers if each.id is not None}
            for each in other.allocation.containers:
                same = other.pod.uid == pod_allocation.pod.uid and each.name == container
                settled = self._matches.settled(other.pod.uid, each.name)
                if each.slices == held and not same and not settled and each.name not in started:
                    yield other, each.name

    async def _record(self, pod_allocation: PodAllocation, allocation: Allocation) -> PodAllocation:
        """The allocation once the watch shows the new record."""
        pod, node = pod_allocation.pod, self._allocations.context().node
        marks = self._allocations.dialects.record_allocation(
            pod, pod_allocation.request, allocation, node, now_ns=time.time_ns()
        )
        outcome = await self._writer.annotate_pod(pod, marks)
        if not outcome.stands:
            raise DeniedError(f"pod {pod.namespace}/{pod.name}: {outcome.detail}; trying again")

        def look() -> PodAllocation | None:
            found = self._pods.by_uid(pod.uid)
            now = None if found is None else self._allocations.read(found)
            return now if now is not None and now.allocation == allocation else None

        settled = await self._pods.until(look, self._wait_seconds)
        if settled is None:
            raise DeniedError(
                f"pod {pod.namespace}/{pod.name}: the new record is not visible yet; trying again"
            )
        return settled


def _put(allocation: Allocation, container: str, slices: tuple[Slice, ...]) -> Allocation:
    containers = tuple(
        ContainerAllocation(each.name, slices) if each.name == container else each
        for each in allocation.containers
    )
    return replace(allocation, containers=containers)


def _equal(one: tuple[Slice, ...], other: tuple[Slice, ...]) -> bool:
    return [(each.cores, each.memory) for each in one] == [
        (each.cores, each.memory) for each in other
    ]


def _name_gpus(slices: tuple[Slice, ...]) -> str:
    return "gpu " + ",".join(str(each.gpu) for each in slices)


AdmissionCandidate = tuple[PodAllocation, Container]
"""A container that may be the one that is being admitted."""


@dataclass(frozen=True, slots=True)
class MatchServices:
    """What matching needs beside `AllocationServices`, shared by all resources."""

    pods: NodePods
    holders: PodResourcesClient
    matches: MatchStore
    exchange: AllocationExchange
    folders: VcudaFolders
    wait_seconds: float


class MatchHandler(StartHandler):
    """Chooses at admission and verifies before the start."""

    def __init__(
        self,
        edition: OfferedEdition,
        resource: OfferedResource,
        services: AllocationServices,
        matching: MatchServices,
    ) -> None:
        super().__init__(edition, resource, services)
        self._matching = matching

    async def allocate(self, ids: tuple[str, ...]) -> ContainerAllocateResponse:
        """What the container that is being admitted receives, as far as is known."""
        resource = self._resource
        if not resource.carries:
            return ContainerAllocateResponse(annotations=fixed_annotations(resource, len(ids)))
        chosen, container = await self._choose(len(ids))
        held = chosen.allocation.slices_of(container.name)
        slices = tuple((piece.gpu, piece.cores, piece.memory) for piece in held)
        match = AdmissionMatch(chosen.pod.uid, container.name, resource.name, slices)
        try:
            answer = self._answer(chosen, container, frozenset(ids))
            self._matching.matches.put(name_units(resource.name, ids), match)
        except SlicewiseError as error:
            raise DeniedError(f"slicewise: {error}") from error
        return answer

    async def _choose(self, count: int) -> AdmissionCandidate:
        """The container that is being admitted, or the likeliest of those that may be."""
        matching = self._matching
        try:
            listed = await asyncio.wait_for(matching.holders.list(), _LIST_SECONDS)
        except (TimeoutError, KubeletError) as error:
            _log.warning("matching without the kubelet's list", error=str(error) or "no answer")
            listed = None

        def look() -> AdmissionCandidate | None:
            found = self._candidates(count, listed)
            return found[0] if found else None

        try:
            chosen = await matching.pods.until(look, matching.wait_seconds)
        except SlicewiseError as error:
            raise DeniedError(f"slicewise: {error}") from error
        if chosen is None:
            raise DeniedError(
                f"slicewise: no pod of this node is allocated {count} of {self._resource.name} "
                "and waits for them; create it again"
            )
        return chosen

    def _candidates(
        self, count: int, listed: tuple[Holder, ...] | None
    ) -> list[AdmissionCandidate]:
        """Unanswered containers that ask for so many, the likeliest first."""
        matching, resource = self._matching, self._resource.name
        waiting = None if listed is None else _waiting(listed, resource)
        found = []
        for local in matching.pods:
            pod = local.pod
            key = (pod.namespace, pod.name)
            if pod.phase.terminal or (waiting is not None and key not in waiting):
                continue
            open_ones = [
                each
                for each in pod.containers
                if amount(each, resource) == count
                and (waiting is None or each.name not in waiting[key])
                and not matching.matches.taken(pod.uid, each.name, resource)
            ]
            if not open_ones:
                continue
            try:
                pod_allocation = self._services.allocations.read(local)
            except SlicewiseError as error:
                _log.warning("allocation unreadable", pod="/".join(key), error=str(error))
                continue
            if pod_allocation is not None:
                # The kubelet goes through one pod's containers before it looks at the next.
                rank = (not matching.matches.begun(pod.uid), matching.pods.arrival(pod.uid))
                found.append((rank, (pod_allocation, open_ones[0])))
        return [candidate for _, candidate in sorted(found, key=lambda pair: pair[0])]

    async def _prepare(self, units: frozenset[str]) -> StartedContainer:
        services, matching, resource = self._services, self._matching, self._resource.name
        name = name_units(resource, units)
        ref = await services.containers.find(resource, units)
        pod_allocation = await services.allocations.wait(ref)
        match = matching.matches.find(name, pod_allocation.pod.uid, ref.container.name)
        if match is None:
            raise DeniedError(
                f"{ref.name} was admitted by another agent, and the GPUs it received are unknown; "
                "create its pod again"
            )
        if match.held != pod_allocation.allocation.slices_of(ref.container.name):
            pod_allocation = await matching.exchange.settle(ref, pod_allocation, match)
        matching.matches.settle(name, match, pod_allocation.pod.uid, ref.container.name)
        started = services.describe_start(ref, pod_allocation, resource, units)
        injection = started.injection
        await asyncio.to_thread(services.builder.prepare, started.container_gpus, injection)
        if injection.limit is not None:
            await asyncio.to_thread(matching.folders.alias, name, pod_allocation.pod.uid)
        await services.on_start(started)
        return started

    def _answer(
        self, pod_allocation: PodAllocation, container: Container, units: frozenset[str]
    ) -> ContainerAllocateResponse:
        container_gpus = self._services.allocations.container_gpus(
            pod_allocation, container, self._resource.name, units
        )
        injection = pod_allocation.dialect.agent.inject(container_gpus)
        late = self._mount_late(injection, pod_allocation, name_units(self._resource.name, units))
        answer = self._services.builder.answer(late)
        return replace(
            answer,
            envs={**self._resource.env, **answer.envs},
            annotations={**fixed_annotations(self._resource, len(units)), **answer.annotations},
        )

    def _mount_late(
        self, injection: Injection, pod_allocation: PodAllocation, name: str
    ) -> Injection:
        """The same, with the pod's folder by a name that is linked to it before the start."""
        own = f"{self._matching.folders.root}/{pod_allocation.pod.uid}"
        late = f"{self._matching.folders.root}/by-units/{name}"
        mounts = tuple(
            replace(each, source=late) if each.source == own else each for each in injection.mounts
        )
        return replace(injection, mounts=mounts)


def _waiting(listed: tuple[Holder, ...], resource: str) -> dict[tuple[str, str], set[str]]:
    """Every pod the kubelet lists, with its containers that hold some of the resource."""
    waiting: dict[tuple[str, str], set[str]] = {}
    for holder in listed:
        holding = waiting.setdefault((holder.namespace, holder.pod), set())
        if holder.units.get(resource):
            holding.add(holder.container)
    return waiting
