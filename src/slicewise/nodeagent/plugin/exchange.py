"""Two containers that received each other's GPUs exchange their allocations, if these are equal.

Nothing is taken from anybody: each keeps the GPUs its answer brought, both records say so, and
every GPU is allocated as much as before.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import structlog

from slicewise.kubelet.errors import DeniedError
from slicewise.model import Allocation, ContainerAllocation, Slice, SlicewiseError
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.allocations import AllocationReader, PodAllocation
from slicewise.nodeagent.plugin.containers import ContainerRef
from slicewise.nodeagent.plugin.match_store import AdmissionMatch, MatchStore
from slicewise.nodeagent.plugin.pod_flags import PodAnnotator

_log = structlog.get_logger(__name__)


class AllocationExchange:
    """Repairs mismatches by rewriting the records of both pods."""

    def __init__(
        self,
        pods: NodePods,
        allocations: AllocationReader,
        matches: MatchStore,
        marker: PodAnnotator,
        *,
        wait_seconds: float = 5.0,
    ) -> None:
        self._pods = pods
        self._allocations = allocations
        self._matches = matches
        self._marker = marker
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
        outcome = await self._marker.annotate_pod(pod, marks)
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
