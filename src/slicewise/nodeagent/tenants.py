"""The pods of this node as usage and audit see them: who they are, and what they were given."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slicewise.kube.local_pods import LocalContainer
from slicewise.model import Allocation, Slice, peak
from slicewise.nodeagent.usage.cgroups import CgroupRef

NO_ALLOCATION: Final = Allocation("")


@dataclass(frozen=True, slots=True)
class NodePod:
    """One pod of the node, whether or not it holds GPUs; ended pods are left out.

    `asks` says that it wants GPUs, `trouble` why its allocation cannot be read. `cgroup` is the
    UID its cgroups carry where that is not its own, as with static pods. `user` and `cluster` are
    what gpu-manager's usage answer tells of a pod.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[LocalContainer, ...] = ()
    allocation: Allocation = NO_ALLOCATION
    asks: bool = False
    trouble: str | None = None
    cgroup: str | None = None
    user: str = ""
    cluster: str = ""

    @property
    def pod(self) -> str:
        """The pod as people write it."""
        return f"{self.namespace}/{self.name}"

    @property
    def living(self) -> tuple[LocalContainer, ...]:
        """The containers that run or are still to run."""
        return tuple(each for each in self.containers if not each.ended)

    @property
    def charges(self) -> tuple[Slice, ...]:
        """What the pod costs each GPU, as the ledger counts it."""
        held = {each.name: each.slices for each in self.allocation.containers}
        return peak(self.containers, held) if held else ()

    def held(self, container: str) -> tuple[Slice, ...]:
        """The slices of one container."""
        return self.allocation.slices_of(container)


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """To whom a process belongs; the container is None while its pod's status lags behind."""

    tenant: NodePod
    container: str | None


class PodIndex:
    """Finds the owner of a place among the pods of the node."""

    def __init__(self, tenants: Iterable[NodePod]) -> None:
        ids: dict[str, ProcessOwner] = {}
        uids: dict[str, NodePod] = {}
        for tenant in tenants:
            uids[tenant.uid] = tenant
            if tenant.cgroup is not None:
                uids.setdefault(tenant.cgroup, tenant)
            for container in tenant.containers:
                if container.id is not None:
                    ids[container.id] = ProcessOwner(tenant, container.name)
        self._ids: Mapping[str, ProcessOwner] = MappingProxyType(ids)
        self._uids: Mapping[str, NodePod] = MappingProxyType(uids)

    def find(self, places: Iterable[CgroupRef]) -> ProcessOwner | None:
        """Who runs there: the outermost place that is known decides."""
        for place in places:
            owner = self._ids.get(place.container) if place.container else None
            if owner is not None:
                return owner
            tenant = self._uids.get(place.pod) if place.pod else None
            if tenant is not None:
                return ProcessOwner(tenant, _only_container(tenant))
        return None


def _only_container(tenant: NodePod) -> str | None:
    return tenant.containers[0].name if len(tenant.containers) == 1 else None
