"""A pod's allocation, read as soon as the API server shows it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from slicewise.dialects import Dialect, Dialects
from slicewise.dialects.shared.injection import ContainerGpus, GpuManagerPaths
from slicewise.kube.errors import KubeError
from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.errors import DeniedError
from slicewise.model import (
    Allocation,
    Container,
    DialectError,
    Node,
    Pod,
    QuantityError,
    Request,
    SignatureState,
)
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.containers import ContainerRef
from slicewise.nodeagent.plugin.refusals import StartRefusedError, explain_verdict, find_cause

# A key or a signature may still be on its way; these can never become right.
_FINAL: Final = (SignatureState.VALID, SignatureState.WRONG)


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """A pod's request and allocation, as its dialect reads them."""

    found: LocalPod
    dialect: Dialect
    request: Request
    allocation: Allocation

    @property
    def pod(self) -> Pod:
        return self.found.pod


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node that allocations are read against."""

    node: Node
    places: GpuManagerPaths
    labels: dict[str, str]


class AllocationReader:
    """Reads allocations from signed records, and waits for those that are still to be written.

    Marks that others wrote count only where the policy of the keys says so.
    """

    def __init__(
        self,
        dialects: Dialects,
        pods: NodePods,
        context: Callable[[], NodeContext],
        *,
        read_pod: Callable[[str, str], Awaitable[LocalPod | None]],
        wait_seconds: float = 10.0,
    ) -> None:
        self.context = context
        self.dialects = dialects
        self._pods = pods
        self._read_pod = read_pod
        self._wait_seconds = wait_seconds

    def read(self, found: LocalPod) -> PodAllocation | None:
        """What the pod was allocated; None when no record of it is believed yet."""
        dialect = self.dialects.claim(found.pod)
        if dialect is None:
            return None
        request = dialect.pods.read_request(found.pod)
        verdict = self._pods.judge(found)
        if verdict.signed is not None:
            return PodAllocation(found, dialect, request, verdict.signed.allocation)
        if not verdict.believed:
            if verdict.signature in _FINAL:
                raise StartRefusedError(found.pod, find_cause(verdict), explain_verdict(verdict))
            return None
        allocation = dialect.pods.read_allocation(found.pod, request, self.context().node)
        return None if allocation is None else PodAllocation(found, dialect, request, allocation)

    async def wait(self, ref: ContainerRef) -> PodAllocation:
        """The allocation of this container's pod, or why there is none."""
        uid, name = ref.found.pod.uid, f"{ref.found.pod.namespace}/{ref.found.pod.name}"

        def look() -> PodAllocation | None:
            found = self._pods.by_uid(uid)
            return None if found is None else self.read(found)

        try:
            pod_allocation = await self._pods.until(look, self._wait_seconds)
            if pod_allocation is None:
                pod_allocation = await self._ask(ref.found.pod)
        except (DialectError, QuantityError) as error:
            raise DeniedError(f"pod {name}: {error}") from error
        if pod_allocation is None:
            raise self.explain(self._pods.by_uid(uid) or ref.found)
        if not pod_allocation.allocation.slices_of(ref.container.name):
            raise DeniedError(f"pod {name}: no GPU is recorded for {ref.container.name}")
        return pod_allocation

    def explain(self, found: LocalPod) -> DeniedError:
        """Why nothing is read of a pod, however long it is waited for."""
        pod, verdict = found.pod, self._pods.judge(found)
        try:
            marked = self.dialects.read_allocation(pod, self.context().node) is not None
        except (DialectError, QuantityError):
            marked = True
        if not verdict.believed and (marked or verdict.signature is not None):
            return StartRefusedError(pod, find_cause(verdict), explain_verdict(verdict))
        return DeniedError(
            f"pod {pod.namespace}/{pod.name} has no record of its GPUs yet; "
            "expected the extender's record, trying again"
        )

    def container_gpus(
        self,
        pod_allocation: PodAllocation,
        container: Container,
        resource: str,
        ids: frozenset[str],
    ) -> ContainerGpus:
        """What the container was allocated, with the units by which it is known."""
        context = self.context()
        return ContainerGpus(
            pod=pod_allocation.pod,
            container=container,
            request=pod_allocation.request,
            allocation=pod_allocation.allocation,
            node=context.node,
            resource=resource,
            ids=ids,
            places=context.places,
            labels=context.labels,
            compat32=container.name in pod_allocation.found.compat32,
        )

    async def _ask(self, pod: Pod) -> PodAllocation | None:
        """The allocation as the API server has it now, in case the watch lags far behind."""
        try:
            found = await self._read_pod(pod.namespace, pod.name)
        except KubeError:
            return None
        if found is None or found.pod.uid != pod.uid:
            return None
        self._pods.put(found)
        return self.read(found)
