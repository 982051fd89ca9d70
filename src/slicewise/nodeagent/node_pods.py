"""The agent's one cache of its node's pods: as the API server's watch tells them.

The device plugin waits here for pods it has not heard of; usage and audit read what each pod was
allocated. A pod's dialect is read when the pod or the GPUs change, never when somebody asks.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from slicewise.diagnose.evidence import NO_RECORD
from slicewise.dialects import DEFAULT, Dialects
from slicewise.dialects.shared.signed_record import judge
from slicewise.kube.local_pods import LocalContainer, LocalPod
from slicewise.kube.watch import Seen, WatchEvent
from slicewise.model import (
    Allocation,
    Container,
    ContainerAllocation,
    DialectError,
    Isolation,
    Links,
    Node,
    Pod,
    QuantityError,
    RecordTrust,
    RecordVerdict,
    Slice,
    Standing,
    peak,
)
from slicewise.model.grants import NO_SLICES, Slices
from slicewise.nodeagent.plugin.refusals import explain_verdict
from slicewise.nodeagent.usage.cgroups import CgroupRef
from slicewise.nvml.driver import GpuDevice

T = TypeVar("T")
NO_ALLOCATION: Final = Allocation("")
# Garbage is looked for once a minute, and removed at the second look.
REMEMBER_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """What a prepared claim holds, and what of it the containers of one pod may use."""

    uid: str
    charges: tuple[Slice, ...]
    containers: Slices


@dataclass(frozen=True, slots=True)
class NodePod:
    """One pod of the node, whether or not it holds GPUs; ended pods are left out.

    `allocation` is what its containers started with, and what its record grants to the others;
    `recorded` is what its record grants, nothing where the record is not believed. `asks` says
    that it wants GPUs, `trouble` why its record cannot be read or is not believed. `cgroup` is
    the UID its cgroups carry where that is not its own, as with static pods. `user` and `cluster`
    are what gpu-manager's usage answer tells of a pod.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[LocalContainer, ...] = ()
    allocation: Allocation = NO_ALLOCATION
    recorded: Allocation = NO_ALLOCATION
    standing: Standing = Standing.UNCHECKED
    order: tuple[int, int] = (0, 0)
    """When its record was decided: greater is newer."""
    asks: bool = False
    trouble: str | None = None
    cgroup: str | None = None
    user: str = ""
    cluster: str = ""
    claims: tuple[HeldClaim, ...] = ()
    """The prepared claims that it uses, beside what it was allocated by resource names."""

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
        """What the container may use of each GPU, by its allocation and by claims."""
        own = self.allocation.slices_of(container)
        more = [piece for each in self.claims for piece in each.containers.get(container, ())]
        return peak(_ONE, {"": (*own, *more)}) if more else own

    def isolation(self, container: str) -> Isolation | None:
        """What its record promises of the container's limits; None for whole GPUs."""
        found = (each for each in self.recorded.containers if each.name == container)
        return next((each.isolation for each in found), None)


class NodePods:
    """Every pod bound to the node, in the order in which it was first heard of.

    It is fed from one thread: pods by the watch, GPUs by whoever follows the driver.
    """

    def __init__(
        self,
        node: str = "",
        dialects: Dialects = DEFAULT,
        *,
        trust: RecordTrust | None = None,
        started: Callable[[str, Node], Slices] = lambda *_: NO_SLICES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with no pods; `started` tells what a pod's containers started with, by its UID."""
        self._dialects = dialects
        self._trust = trust
        self._started = started
        self._clock = clock
        self._node = Node(node)
        self._gpus: tuple[GpuDevice, ...] = ()
        self._pods: dict[str, LocalPod] = {}
        self._read: dict[str, NodePod] = {}
        self._departed: dict[str, float] = {}
        self._ended: set[str] = set()
        self._arrivals: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[LocalPod | None], None]] = []
        self.claimed: Callable[[LocalPod], tuple[HeldClaim, ...]] = lambda _: ()
        """What prepared claims bring the containers of a pod."""

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
        self._ended &= self._departed.keys()
        return frozenset(self._departed)

    def left_running(self, uid: str) -> bool:
        """Whether containers of a pod that left may still run; known only of recent ones."""
        return uid not in self._ended

    def listen(self, hear: Callable[[LocalPod | None], None]) -> None:
        """Tell of every pod that was seen, and of None whenever one is gone."""
        self._listeners.append(hear)

    def set_gpus(self, gpus: Sequence[GpuDevice], links: Links | None = None) -> None:
        """Take over what the driver lists, and read every pod again if it changed."""
        node = Node(self.node, tuple(device.gpu for device in gpus), links)
        changed = node != self._node
        self._gpus, self._node = tuple(gpus), node
        if changed:
            self.reread()

    def reread(self) -> None:
        """Judge every pod again, as when the keys have changed, and wake whoever waits."""
        for uid, pod in self._pods.items():
            self._read[uid] = self._read_pod(pod)
        self._wake()

    def apply(self, changes: Sequence[WatchEvent[LocalPod]]) -> None:
        """Take in what the watch tells, in its order, and wake whoever waits for it."""
        for change in changes:
            heard = None
            if isinstance(change, Seen):
                heard = change.value
                self._learn(heard)
            else:
                self._drop(change.key)
            for hear in self._listeners:
                hear(heard)
        self._wake()

    def put(self, found: LocalPod) -> None:
        """Learn of a pod that was read otherwise, unless what is known is newer.

        A pod that has left meanwhile stays away, because the watch would not tell of its end again.
        """
        if found.pod.uid not in self._departed:
            self._learn(found)

    def _learn(self, found: LocalPod) -> None:
        uid = found.pod.uid
        known = self._pods.get(uid)
        if known is not None and known.pod.version > found.pod.version:
            return
        if known is None:
            self._count += 1
            self._arrivals[uid] = self._count
            self._since[uid] = self._clock()
        self._pods[uid] = found
        self._read[uid] = self._read_pod(found)

    def by_uid(self, uid: str) -> LocalPod | None:
        return self._pods.get(uid)

    def judge(self, found: LocalPod) -> RecordVerdict:
        """How far the pod's record is believed now."""
        return judge(found.pod, self._node, self._trust)

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

    def age(self, uid: str) -> float:
        """Seconds since the pod was heard of."""
        return self._clock() - self._since.get(uid, self._clock())

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
        left = self._pods.pop(uid, None)
        if left is not None:
            self._departed[uid] = self._clock()
            if all(each.stopped for each in left.containers):
                self._ended.add(uid)
            self.departed()
        self._read.pop(uid, None)
        self._arrivals.pop(uid, None)
        self._since.pop(uid, None)

    def _read_pod(self, found: LocalPod) -> NodePod:
        started = self._started(found.pod.uid, self._node)
        read = read_node_pod(
            found, self._node, self._dialects, verdict=self.judge(found), started=started
        )
        claims = self.claimed(found) if found.uses else ()
        return replace(read, claims=claims) if claims else read

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


_UNCHECKED: Final = RecordVerdict(Standing.UNCHECKED)
_ONE: Final = (Container(""),)


def read_node_pod(
    local: LocalPod,
    node: Node,
    dialects: Dialects = DEFAULT,
    *,
    verdict: RecordVerdict = _UNCHECKED,
    started: Slices = NO_SLICES,
) -> NodePod:
    """The pod with what it was allocated; one whose record is not believed says why."""
    pod, asks, trouble = local.pod, True, None
    recorded: Allocation | None = None
    try:
        # What a claim serves is prepared and counted as a claim.
        asks = not pod.by_claim and bool(dialects.read_request(pod).containers)
        if asks:
            recorded, trouble = _read_record(pod, node, dialects, verdict)
    except (DialectError, QuantityError) as error:
        trouble = str(error)
    held = _find_held(local, node, dialects, recorded=recorded, started=started)
    return NodePod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        containers=local.containers,
        allocation=held,
        recorded=recorded or NO_ALLOCATION,
        standing=verdict.standing,
        order=(0, 0) if verdict.signed is None else verdict.signed.order,
        asks=asks,
        trouble=trouble,
        cgroup=local.cgroup,
        user=local.user,
        cluster=local.cluster,
    )


def _read_record(
    pod: Pod, node: Node, dialects: Dialects, verdict: RecordVerdict
) -> tuple[Allocation | None, str | None]:
    """What a pod that asks for GPUs is granted, or why nothing."""
    if verdict.signed is not None:
        return verdict.signed.allocation, None
    if verdict.signature is not None and not verdict.believed:
        return None, explain_verdict(verdict)
    marked = dialects.read_allocation(pod, node)
    if marked is None:
        return None, NO_RECORD
    return (marked, None) if verdict.believed else (None, explain_verdict(verdict))


def _find_held(
    local: LocalPod, node: Node, dialects: Dialects, *, recorded: Allocation | None, started: Slices
) -> Allocation:
    """What the containers hold: what they started with, before what is recorded."""
    held = {} if recorded is None else recorded.by_container
    running = {each.name for each in local.containers if each.running} - started.keys()
    if recorded is None and running and not local.pod.by_claim:
        # Somebody else started it before us, and its marks are all that is known.
        try:
            marked = dialects.read_allocation(local.pod, node) or NO_ALLOCATION
        except (DialectError, QuantityError):
            marked = NO_ALLOCATION
        held = {name: each for name, each in marked.by_container.items() if name in running}
    if recorded is not None and not started:
        return recorded
    held.update(started)
    parts = (ContainerAllocation(name, slices) for name, slices in held.items() if slices)
    return Allocation(node.name, tuple(parts)) if held else NO_ALLOCATION


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
