"""Answers the kubelet for one resource where the runtime does not support CDI.

Allocate must already bring the GPUs, without naming the container. The kubelet's own list
shows the pod that is being admitted: it is there and holds nothing yet. Before the start the
container is known for certain, and one that received another's answer does not start on it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import structlog

from slicewise.dialects.shared.injection import Injection
from slicewise.dialects.shared.offers import OfferedEdition, OfferedResource
from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.errors import DeniedError, KubeletError
from slicewise.kubelet.holders import Holder, PodResourcesClient
from slicewise.kubelet.v1beta1 import ContainerAllocateResponse
from slicewise.model import Container, Slice, SlicewiseError
from slicewise.nodeagent.limits.vcuda import VcudaFolders
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import PodAllocation
from slicewise.nodeagent.plugin.cdi import name_units
from slicewise.nodeagent.plugin.cdi_handler import (
    AllocationServices,
    StartedContainer,
    StartHandler,
    fixed_annotations,
)
from slicewise.nodeagent.plugin.containers import amount
from slicewise.nodeagent.plugin.grant_book import name_slices
from slicewise.nodeagent.plugin.match_store import AdmissionMatch, MatchStore
from slicewise.nodeagent.plugin.refusals import StartRefusedError

_log = structlog.get_logger(__name__)
_LIST_SECONDS: Final = 2.0


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
        match = AdmissionMatch(
            chosen.pod.uid,
            container.name,
            resource.name,
            slices,
            pod=f"{chosen.pod.namespace}/{chosen.pod.name}",
            gpus=name_slices(held, self._services.allocations.context().node),
        )
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
            chosen = await matching.pods.until(look, self._patience(count, listed))
        except SlicewiseError as error:
            raise DeniedError(f"slicewise: {error}") from error
        if chosen is None:
            self._refuse_doubted(count, listed)
            raise DeniedError(
                f"slicewise: no pod of this node is allocated {count} of {self._resource.name} "
                "and waits for them; create it again"
            )
        return chosen

    def _patience(self, count: int, listed: tuple[Holder, ...] | None) -> float:
        """Seconds to wait for a record: no pod is waited for twice, however many come at once."""
        pods, seconds = self._matching.pods, self._matching.wait_seconds
        ages = [pods.age(local.pod.uid) for local, _ in self._open(count, listed)]
        unseen = any(pods.by_name(each.namespace, each.pod) is None for each in listed or ())
        return seconds if unseen or not ages else max(0.0, seconds - min(ages))

    def _refuse_doubted(self, count: int, listed: tuple[Holder, ...] | None) -> None:
        """Raise if the records of pods that may be meant are not believed, and tell of each."""
        doubts = [
            error
            for local, _ in self._open(count, listed)
            if isinstance(error := self._services.allocations.explain(local), StartRefusedError)
        ]
        for error in doubts:
            self._services.refusals.hear(error)
        if doubts:
            raise DeniedError(f"slicewise: {doubts[0]}") from doubts[0]

    def _open(
        self, count: int, listed: tuple[Holder, ...] | None
    ) -> Iterator[tuple[LocalPod, Container]]:
        """Pods with a container that asks for so many and was not answered, and that container."""
        matching, resource = self._matching, self._resource.name
        waiting = None if listed is None else _waiting(listed, resource)
        for local in matching.pods:
            pod = local.pod
            key = (pod.namespace, pod.name)
            if pod.phase.terminal or (waiting is not None and key not in waiting):
                continue
            for each in pod.containers:
                if (
                    amount(each, resource) == count
                    and (waiting is None or each.name not in waiting[key])
                    and not matching.matches.taken(pod.uid, each.name, resource)
                ):
                    yield local, each
                    break

    def _candidates(
        self, count: int, listed: tuple[Holder, ...] | None
    ) -> list[AdmissionCandidate]:
        """Unanswered containers that ask for so many, the likeliest first."""
        matching, found = self._matching, []
        for local, container in self._open(count, listed):
            pod = local.pod
            try:
                pod_allocation = self._services.allocations.read(local)
            except SlicewiseError as error:
                name = f"{pod.namespace}/{pod.name}"
                _log.warning("allocation unreadable", pod=name, error=str(error))
                continue
            if pod_allocation is not None:
                # The kubelet goes through one pod's containers before it looks at the next.
                rank = (not matching.matches.begun(pod.uid), matching.pods.arrival(pod.uid))
                found.append((rank, (pod_allocation, container)))
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
        recorded = pod_allocation.allocation.slices_of(ref.container.name)
        if match.held != recorded:
            raise DeniedError(
                f"{ref.name} received the GPUs of another pod ({_name_gpus(match.held)}) and is "
                f"allocated {_name_gpus(recorded)}; it does not start on them, "
                "create its pod again"
            )
        async with services.gate.admitted(pod_allocation, ref.container):
            matching.matches.settle(name, match, pod_allocation.pod.uid, ref.container.name)
            started = services.describe_start(ref, pod_allocation, resource, units)
            injection = started.injection
            await asyncio.to_thread(services.prepare, started.container_gpus, injection)
            if services.limits is not None:
                limited = (pod_allocation.pod.uid, ref.container.name)
                await asyncio.to_thread(services.limits.folders.alias, name, *limited)
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
        injection = self._services.inject(pod_allocation, container_gpus)
        name = name_units(self._resource.name, units)
        late = self._mount_late(injection, pod_allocation, name)
        if self._services.limits is not None:
            late = self._services.limits.mount_late(container_gpus, late, name)
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
