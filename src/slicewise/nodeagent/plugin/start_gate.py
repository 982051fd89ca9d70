"""The last line: nothing starts on a GPU that has no room for it, whatever its record says.

A container that starts again gets exactly what it had. Pods that are gone from the API server
count for as long as their containers run, for a deletion may be forced.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from slicewise.kubelet.errors import DeniedError
from slicewise.kubelet.runtime import RuntimeClient
from slicewise.model import FULL, Container, Node, Pod, Slice
from slicewise.model.grants import GrantConflict, PodGrants, what_would_start
from slicewise.nodeagent.node_pods import NodePod, NodePods
from slicewise.nodeagent.plugin.allocations import PodAllocation
from slicewise.nodeagent.plugin.grant_book import GrantBook, GrantedGpu, StartedGrant, name_slices
from slicewise.nodeagent.plugin.refusals import RefusalCause, StartRefusedError

# After so many questions a runtime that does not answer is waited for no more.
_MOST_UNANSWERED: Final = 3


@dataclass(frozen=True, slots=True)
class _Account:
    """One pod's grants with what they were made from."""

    source: NodePod | None
    booked: Mapping[str, StartedGrant]
    grants: PodGrants
    claimed: tuple[Slice, ...]


class StartGate:
    """Decides whether a container may start, and remembers what it starts with."""

    def __init__(
        self,
        pods: NodePods,
        book: GrantBook,
        node: Callable[[], Node],
        *,
        synced: asyncio.Event,
        runtime: RuntimeClient | None = None,
    ) -> None:
        """Open for nobody before `synced` says that all pods of the node are known."""
        self.book = book
        self._pods = pods
        self._node = node
        self._runtime = runtime
        self._synced = synced
        self.claims: Callable[[], Iterable[PodGrants]] = tuple
        """What prepared ResourceClaims hold."""
        self._accounts: dict[str, _Account] = {}
        self._unanswered: Counter[str] = Counter()

    async def admit(self, held: PodAllocation, container: Container) -> bool:
        """Let the container start with its slices, or refuse; False if it had started before."""
        pod, node = held.pod, self._node()
        slices = held.allocation.slices_of(container.name)
        before = self.book.find(pod.uid, container.name)
        if before is not None:
            if before.gives(slices, node):
                return False
            raise _refuse_change(pod, before, name_slices(slices, node))
        seen = self.book.seen(pod.uid, container.name)
        if seen is not None and seen.uuids != {uuid for uuid, _, _ in name_slices(slices, node)}:
            raise _refuse_change(pod, seen, name_slices(slices, node))
        await self._make_room(held, container.name)
        name = f"{pod.namespace}/{pod.name}"
        self.book.put(StartedGrant(pod.uid, name, container.name, name_slices(slices, node)))
        return True

    @asynccontextmanager
    async def admitted(self, held: PodAllocation, container: Container) -> AsyncIterator[None]:
        """Let the container start; a grant made for it is withdrawn if the block fails."""
        fresh = await self.admit(held, container)
        try:
            yield
        except BaseException:
            if fresh:
                self.book.withdraw(held.pod.uid, container.name)
            raise

    def conflicts(self) -> Mapping[str, str]:
        """Why pods would be refused if all wanted to start now, by UID."""
        node = self._node()
        plan = what_would_start(node, (each.grants for each in self._collect(node)))
        return {uid: str(conflict) for uid, conflict in plan.refused.items()}

    async def settle(self) -> None:
        """Drop what is known of pods that are gone and of which nothing runs any more."""
        for uid in self.book.pods():
            if self._pods.by_uid(uid) is None:
                await self._drop_ended(uid)

    async def _make_room(self, held: PodAllocation, container: str) -> None:
        await self._synced.wait()
        asked: set[str] = set()
        while True:
            # Between this look and the grant nobody else runs.
            conflict = self._find_conflict(held, container)
            if conflict is None:
                return
            gone = [uid for uid in self._find_gone(conflict.gpu) if uid not in asked]
            if not gone:
                why = f"{conflict}; delete one of them, or wait until it has ended"
                raise StartRefusedError(held.pod, RefusalCause.CONFLICT, why)
            for uid in gone:
                asked.add(uid)
                await self._drop_ended(uid)

    def _find_gone(self, gpu: int) -> Iterator[str]:
        """Pods that are gone from the API server and counted on this GPU."""
        for uid in self.book.pods():
            held = self.book.slices(uid, self._node()).values()
            on_gpu = any(piece.gpu == gpu for pieces in held for piece in pieces)
            if on_gpu and self._pods.by_uid(uid) is None:
                yield uid

    def _find_conflict(self, held: PodAllocation, container: str) -> GrantConflict | None:
        node, uid = self._node(), held.pod.uid
        accounts = {each.grants.uid: each for each in self._collect(node)}
        own = accounts.get(uid)
        wanted = held.allocation.slices_of(container)
        if own is None or own.grants.recorded.get(container) != wanted:
            name = f"{held.pod.namespace}/{held.pod.name}"
            raise DeniedError(f"pod {name}: its record has just changed; trying again")
        if _all_fit(node, own, accounts.values()):
            return None
        grants = (each.grants for each in accounts.values())
        return what_would_start(node, grants).refused.get(uid)

    def _collect(self, node: Node, *, claims: bool = True) -> Iterator[_Account]:
        before, self._accounts = self._accounts, {}
        for pod in self._pods.pods():
            booked = self.book.pod(pod.uid)
            known = before.get(pod.uid)
            if known is None or known.source is not pod or known.booked is not booked:
                grants = read_pod_grants(pod, self.book, node)
                known = _Account(pod, booked, grants, grants.claimed)
            self._accounts[pod.uid] = known
            yield known
        for uid in self.book.pods():
            if uid not in self._accounts and not self._pods.left_running(uid):
                self.book.drop(uid)
            elif uid not in self._accounts:
                booked = self.book.pod(uid)
                containers = tuple(Container(name) for name in booked)
                name = next(iter(booked.values())).pod
                started = self.book.slices(uid, node)
                grants = PodGrants(uid, name, containers, started=started)
                yield _Account(None, booked, grants, grants.held)
        for each in self.claims() if claims else ():
            yield _Account(None, {}, each, each.held)

    def grants(self) -> tuple[PodGrants, ...]:
        """What pods that ask by resource name have started with, or may start with."""
        return tuple(each.grants for each in self._collect(self._node(), claims=False))

    async def _drop_ended(self, uid: str) -> None:
        """Forget a pod that is gone, unless the runtime says that containers of it run."""
        if self._runtime is not None and self._pods.left_running(uid):
            running = await self._runtime.running(uid)
            self._unanswered[uid] += running is None
            if running or (running is None and self._unanswered[uid] < _MOST_UNANSWERED):
                return
        del self._unanswered[uid]
        self.book.drop(uid)


def read_pod_grants(pod: NodePod, book: GrantBook, node: Node) -> PodGrants:
    """What the pod may start and has started; one that is not believed may start nothing."""
    slices = pod.allocation.by_container
    running = {each.name for each in pod.containers if each.running}
    started = {name: held for name, held in slices.items() if name in running}
    started.update(book.slices(pod.uid, node))
    recorded = pod.recorded.by_container
    return PodGrants(pod.uid, pod.full_name, pod.containers, recorded, started, pod.order)


def _all_fit(node: Node, own: _Account, accounts: Iterable[_Account]) -> bool:
    """Whether the pod's GPUs have room for every record on them, which is nearly always so."""
    sums = {piece.gpu: (0, 0) for piece in own.claimed}
    for account in accounts:
        for piece in account.claimed:
            if piece.gpu in sums:
                cores, memory = sums[piece.gpu]
                sums[piece.gpu] = cores + piece.cores, memory + piece.memory
    sizes = {gpu.index: gpu.memory for gpu in node.gpus}
    return all(
        cores <= FULL and memory <= sizes.get(gpu, 0) for gpu, (cores, memory) in sums.items()
    )


def _refuse_change(pod: Pod, before: StartedGrant, now: Iterable[GrantedGpu]) -> StartRefusedError:
    why = (
        f"{before.container} started on {_name_gpus(before.gpus)}, and its record now says "
        f"{_name_gpus(now)}; a container keeps what it started with: "
        "delete the pod to place it again"
    )
    return StartRefusedError(pod, RefusalCause.CHANGED, why)


def _name_gpus(gpus: Iterable[GrantedGpu]) -> str:
    return ", ".join(f"{uuid} ({cores} percent, {memory} MiB)" for uuid, cores, memory in gpus)
