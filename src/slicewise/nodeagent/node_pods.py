"""The agent's one cache of its node's pods: as the API server's watch tells them.

The device plugin waits here for pods it has not heard of; usage and audit read what each pod was
allocated. A pod's dialect is read when the pod or the GPUs change, never when somebody asks.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from slicewise.dialects import DEFAULT, Dialects
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Seen, WatchEvent
from slicewise.model import Allocation, DialectError, Links, Node, Slice, peak
from slicewise.nodeagent.usage.cgroups import CgroupRef
from slicewise.nvml.driver import GpuDevice

T = TypeVar("T")
NO_ALLOCATION: Final = Allocation("")
# Garbage is looked for once a minute, and removed at the second look.
REMEMBER_SECONDS: Final = 180.0


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
    def full_name(self) -> str:
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
        return self.allocation.slices_of(container)


class NodePods:
    """Every pod bound to the node, in the order in which it was first heard of.

    It is fed from one thread: pods by the watch, GPUs by whoever follows the driver.
    """

    def __init__(
        self,
        node: str = "",
        dialects: Dialects = DEFAULT,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dialects = dialects
        self._clock = clock
        self._node = Node(node)
        self._gpus: tuple[GpuDevice, ...] = ()
        self._pods: dict[str, LocalPod] = {}
        self._read: dict[str, NodePod] = {}
        self._departed: dict[str, float] = {}
        self._arrivals: dict[str, int] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[LocalPod | None], None]] = []

    def __iter__(self) -> Iterator[LocalPod]:
        """The pods, the longest known first."""
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def node(self) -> str:
        return self._node.name

    def gpus(self) -> Sequence[GpuDevice]:
        """The GPUs in index order."""
        return self._gpus

    def links(self) -> Links | None:
        """How near the GPUs are, in their order; None when that is unknown."""
        return self._node.links

    def pods(self) -> Sequence[NodePod]:
        """The pods with what each was allocated."""
        return tuple(self._read.values())

    def departed(self) -> frozenset[str]:
        """UIDs of pods that left within the last minutes."""
        since = self._clock() - REMEMBER_SECONDS
        self._departed = {uid: at for uid, at in self._departed.items() if at > since}
        return frozenset(self._departed)

    def listen(self, hear: Callable[[LocalPod | None], None]) -> None:
        """Tell of every pod that was seen, and of None whenever one is gone."""
        self._listeners.append(hear)

    def set_gpus(self, gpus: Sequence[GpuDevice], links: Links | None = None) -> None:
        """Take over what the driver lists, and read every pod anew if it changed."""
        node = Node(self.node, tuple(device.gpu for device in gpus), links)
        changed = node != self._node
        self._gpus, self._node = tuple(gpus), node
        if changed:
            for uid, pod in self._pods.items():
                self._read[uid] = read_node_pod(pod, node, self._dialects)

    def apply(self, changes: Sequence[WatchEvent[LocalPod]]) -> None:
        """Take in what the watch tells, in its order, and wake whoever waits for it."""
        for change in changes:
            heard = None
            if isinstance(change, Seen):
                heard = change.value
                self.put(heard)
            else:
                self._drop(change.key)
            for hear in self._listeners:
                hear(heard)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def put(self, found: LocalPod) -> None:
        """Learn of a pod that was read otherwise, unless what is known is newer."""
        uid = found.pod.uid
        known = self._pods.get(uid)
        if known is not None and known.pod.version > found.pod.version:
            return
        if known is None:
            self._count += 1
            self._arrivals[uid] = self._count
        self._pods[uid] = found
        self._read[uid] = read_node_pod(found, self._node, self._dialects)

    def by_uid(self, uid: str) -> LocalPod | None:
        return self._pods.get(uid)

    def by_name(self, namespace: str, name: str) -> LocalPod | None:
        """The pod of this name that was heard of last."""
        named = [
            (self._arrivals[uid], found)
            for uid, found in self._pods.items()
            if found.pod.name == name and found.pod.namespace == namespace
        ]
        return max(named, key=lambda pair: pair[0])[1] if named else None

    def arrival(self, uid: str) -> int:
        """When the pod was heard of: smaller is earlier."""
        return self._arrivals.get(uid, self._count + 1)

    async def until(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """What `look` finds as soon as it finds anything; None if it did not within this time."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            changed = self._changed
            found = look()
            if found is not None:
                return found
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return look()

    def _drop(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._departed[uid] = self._clock()
        self._read.pop(uid, None)
        self._arrivals.pop(uid, None)


def read_node_pod(local: LocalPod, node: Node, dialects: Dialects = DEFAULT) -> NodePod:
    """The pod with what it was allocated; one whose record cannot be read says why."""
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


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """To whom a process belongs; the container is None while its pod's status lags behind."""

    pod: NodePod
    container: str | None


class PodIndex:
    """Finds the pod and container that a process' cgroup names."""

    def __init__(self, pods: Iterable[NodePod]) -> None:
        self._ids: dict[str, ProcessOwner] = {}
        self._uids: dict[str, NodePod] = {}
        for pod in pods:
            self._uids[pod.uid] = pod
            if pod.cgroup is not None:
                self._uids.setdefault(pod.cgroup, pod)
            for container in pod.containers:
                if container.id is not None:
                    self._ids[container.id] = ProcessOwner(pod, container.name)

    def find(self, refs: Iterable[CgroupRef]) -> ProcessOwner | None:
        """Who runs there: the outermost reference that is known decides."""
        for ref in refs:
            owner = self._ids.get(ref.container) if ref.container else None
            if owner is not None:
                return owner
            pod = self._uids.get(ref.pod) if ref.pod else None
            if pod is not None:
                return ProcessOwner(
                    pod, pod.containers[0].name if len(pod.containers) == 1 else None
                )
        return None
