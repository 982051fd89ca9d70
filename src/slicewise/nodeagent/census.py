"""Who lives on this node: its GPUs as the driver lists them, its pods as the API tells of them.

A pod's dialect is read when the pod or the GPUs change, never when somebody asks.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from slicewise.dialects import DEFAULT, Dialects
from slicewise.kube.local_pods import LocalPod
from slicewise.kube.watch import Gone, WatchEvent
from slicewise.model import DialectError, Links, Node
from slicewise.nodeagent.tenants import NO_ALLOCATION, NodePod
from slicewise.nvml.driver import GpuDevice

# Leftovers are looked for once a minute, and removed at the second look.
FAREWELL_SECONDS: Final = 180.0


class NodeCensus:
    """Follows the pods and GPUs of one node; it is fed from one thread."""

    def __init__(
        self,
        node: str,
        dialects: Dialects = DEFAULT,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dialects = dialects
        self._clock = clock
        self._departed: dict[str, float] = {}
        self._node = Node(node)
        self._gpus: tuple[GpuDevice, ...] = ()
        self._pods: dict[str, LocalPod] = {}
        self._tenants: dict[str, NodePod] = {}

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    def gpus(self) -> Sequence[GpuDevice]:
        """The GPUs in index order."""
        return self._gpus

    def links(self) -> Links | None:
        """How near the GPUs are, in their order; None when that is unknown."""
        return self._node.links

    def tenants(self) -> Sequence[NodePod]:
        """The pods bound to the node that have not ended."""
        return tuple(self._tenants.values())

    def departed(self) -> frozenset[str]:
        """UIDs of pods that left within the last minutes."""
        since = self._clock() - FAREWELL_SECONDS
        self._departed = {uid: at for uid, at in self._departed.items() if at > since}
        return frozenset(self._departed)

    def find(self, uid: str) -> NodePod | None:
        """The pod with this UID, if it is here."""
        return self._tenants.get(uid)

    def set_gpus(self, gpus: Sequence[GpuDevice], links: Links | None = None) -> None:
        """Take over what the driver lists, and read every pod anew if it changed."""
        node = Node(self.node, tuple(device.gpu for device in gpus), links)
        changed = node != self._node
        self._gpus, self._node = tuple(gpus), node
        if changed:
            for uid, pod in self._pods.items():
                self._tenants[uid] = read_node_pod(pod, node, self._dialects)

    def apply(self, changes: Sequence[WatchEvent[LocalPod]]) -> None:
        """Take in what the API told of the node's pods, in its order."""
        for change in changes:
            if isinstance(change, Gone):
                if self._pods.pop(change.key, None) is not None:
                    self._departed[change.key] = self._clock()
                self._tenants.pop(change.key, None)
            else:
                local = change.value
                self._pods[local.pod.uid] = local
                self._tenants[local.pod.uid] = read_node_pod(local, self._node, self._dialects)


def read_node_pod(local: LocalPod, node: Node, dialects: Dialects = DEFAULT) -> NodePod:
    """The pod with what it was given; one whose record cannot be read says why."""
    pod, asks, trouble = local.pod, True, None
    allocation = NO_ALLOCATION
    try:
        request = dialects.read_request(pod)
        asks = bool(request.containers)
        if asks:
            found = dialects.read_allocation(pod, node, request)
            if found is None:
                trouble = "it asks for GPUs and records no allocation"
            else:
                allocation = found
    except DialectError as error:
        trouble = str(error)
    return NodePod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        containers=local.containers,
        allocation=allocation,
        asks=asks,
        trouble=trouble,
        cgroup=local.cgroup,
        user=local.user,
        cluster=local.cluster,
    )
