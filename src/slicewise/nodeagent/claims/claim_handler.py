"""Prepares claims for the kubelet: exactly the GPUs that were allocated, counted before they go.

Every call may come again, after any failure and from any process; the answer stays the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import structlog

from slicewise.dialects.shared.injection import VISIBLE, Injection, list_nodes
from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.dra_messages import ClaimRef, PreparedDevice
from slicewise.kubelet.errors import DeniedError
from slicewise.model import Container, Gpu, Node, Slice
from slicewise.model.claim import Claim, ClaimedDevice, slice_devices
from slicewise.model.grants import PodGrants, Slices, what_would_start
from slicewise.nodeagent.claims.claim_limits import ClaimLimits
from slicewise.nodeagent.claims.claim_store import KIND, ClaimStore, name_cdi_device, name_share
from slicewise.nodeagent.node_pods import HeldClaim, NodePods
from slicewise.nodeagent.plugin.cdi import CdiEdits
from slicewise.nodeagent.plugin.edits import EditsBuilder

_log = structlog.get_logger(__name__)
_VOID: Final = "void"
# The pod is bound before the kubelet asks, and the watch may be a moment late.
_USER_SECONDS: Final = 2.0


@dataclass(slots=True)
class PrepareCounts:
    """How preparing claims has ended so far."""

    prepared: int = 0
    refused: int = 0
    unprepared: int = 0


class ClaimPreparer:
    """Answers the kubelet for the claims of this node."""

    def __init__(
        self,
        store: ClaimStore,
        builder: EditsBuilder,
        node: Callable[[], Node],
        *,
        find: Callable[[str, str], Awaitable[Claim | None]],
        others: Callable[[], Iterable[PodGrants]],
    ) -> None:
        """Read claims by `find`, and count what pods without claims hold by `others`."""
        self.counts = PrepareCounts()
        self._store = store
        self._builder = builder
        self._node = node
        self._find = find
        self._others = others
        self.limits: tuple[ClaimLimits, NodePods] | None = None
        """What holds containers to their shares, and the pods that tell which; none holds nobody.
        """
        # Two claims must not both count on the same room.
        self._adding = asyncio.Lock()
        self._admitted: Claim | None = None
        """The claim that is being prepared: it counts before it is written."""

    def grants(self) -> Iterator[PodGrants]:
        """What prepared claims hold, as the start of other pods counts it."""
        node, admitted = self._node(), self._admitted
        counted = {claim.uid: claim for claim in self._store.claims()}
        if admitted is not None:
            counted[admitted.uid] = admitted
        for claim in counted.values():
            held = _hold(claim, node)
            yield PodGrants(claim.uid, f"claim {claim.full_name}", _phases(held), started=held)

    def claimed(self, pod: LocalPod) -> tuple[HeldClaim, ...]:
        """What the prepared claims of a pod bring its containers."""
        node, names = self._node(), {claim for _, claim, _ in pod.uses}
        return tuple(
            _use(claim, pod, node)
            for claim in self._store.claims()
            if claim.namespace == pod.pod.namespace and claim.name in names
        )

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        try:
            async with self._adding:
                claim = await asyncio.to_thread(self._store.find, ref.uid)
                if claim is None:
                    claim = await self._read(ref)
                    await _finish(self._add(claim))
                else:
                    limited = self._store.limited(claim.uid)
                    await asyncio.to_thread(self._write_limits, claim, limited)
        except BaseException:
            self.counts.refused += 1
            raise
        return tuple(_answer(claim.uid, each) for each in claim.devices)

    async def _add(self, claim: Claim) -> None:
        self._admit(claim)
        self._admitted = claim
        try:
            limited = await self._choose_limited(claim)
            await asyncio.to_thread(self._write_limits, claim, limited)
            edits = self._edit(claim, limited)
            await asyncio.to_thread(self._store.put, claim, edits, limited)
        finally:
            self._admitted = None
        self._tell(claim)

    async def unprepare(self, ref: ClaimRef) -> None:
        async with self._adding:
            await _finish(self._drop(ref.uid))
            self.counts.unprepared += 1
        _log.info("claim unprepared", claim=f"{ref.namespace}/{ref.name}")

    async def _drop(self, uid: str) -> None:
        # The claim itself may be gone, and what is not known was never prepared.
        await asyncio.to_thread(self._store.drop, uid)
        if self.limits is not None:
            await asyncio.to_thread(self.limits[0].drop, uid)

    async def _read(self, ref: ClaimRef) -> Claim:
        claim = await self._find(ref.namespace, ref.name)
        if claim is None or claim.uid != ref.uid or not claim.devices:
            raise DeniedError(f"claim {ref.namespace}/{ref.name}: nothing is allocated to it")
        node = self._node()
        known = {gpu.device: gpu for gpu in node.gpus}
        for each in claim.devices:
            if each.pool != node.name or each.device not in known:
                raise DeniedError(
                    f"claim {claim.full_name}: device {each.pool}/{each.device}: "
                    f"expected a GPU of node {node.name}"
                )
            if each.pending:
                raise DeniedError(
                    f"claim {claim.full_name}: condition {each.pending[0]} of device "
                    f"{each.device} is not True yet"
                )
        return claim

    def _admit(self, claim: Claim) -> None:
        """Refuse what does not fit beside all that has started, whoever allocated it."""
        node = self._node()
        asked = _hold(claim, node)
        own = PodGrants(claim.uid, f"claim {claim.full_name}", _phases(asked), recorded=asked)
        plan = what_would_start(node, [*self._others(), *self.grants(), own])
        conflict = plan.refused.get(claim.uid)
        if conflict is not None:
            raise DeniedError(f"{conflict}; delete one of them, or wait until it has ended")

    async def _choose_limited(self, claim: Claim) -> tuple[str, ...]:
        """The requests whose containers are held to their share."""
        if self.limits is None:
            return ()
        limits, pods = self.limits

        def look() -> tuple[LocalPod, ...] | None:
            known = (pods.by_uid(each.uid) for each in claim.users)
            return tuple(each for each in known if each is not None) or None

        users = await pods.until(look, _USER_SECONDS)
        if users is None:
            raise DeniedError(
                f"claim {claim.full_name}: none of its pods is known on this node yet, "
                "and so not which of its containers to limit; trying again"
            )
        node = self._node()
        gpus = {gpu.index: gpu for gpu in node.gpus}
        return limits.choose(claim, _hold(claim, node), gpus, users)

    def _write_limits(self, claim: Claim, limited: tuple[str, ...]) -> None:
        if self.limits is not None and limited:
            node = self._node()
            gpus = {gpu.index: gpu for gpu in node.gpus}
            self.limits[0].write(claim, limited, _hold(claim, node), gpus)

    def _edit(self, claim: Claim, limited: Collection[str] = ()) -> dict[str, CdiEdits]:
        """What each request brings: its GPUs, and how much of each."""
        node = self._node()
        edits = {}
        for request in claim.requests:
            devices = [each for each in claim.devices if each.request == request]
            names = {each.device for each in devices}
            gpus = [gpu for gpu in node.gpus if gpu.device in names]
            shares = ",".join(_write_share(gpu, devices) for gpu in gpus)
            env = {VISIBLE: _VOID, f"SLICEWISE_SHARE_{name_share(claim.uid, request)}": shares}
            injection = Injection(env=env, devices=list_nodes(gpus))
            if self.limits is not None and request in limited:
                pieces = slice_devices(devices, node.gpus)
                injection = self.limits[0].extend(claim.uid, request, pieces, injection)
            edits[request] = self._builder.edits_of(gpus, injection)
        return edits

    def _tell(self, claim: Claim) -> None:
        self.counts.prepared += 1
        indexes = {gpu.device: gpu.index for gpu in self._node().gpus}
        gpus = sorted({indexes[each.device] for each in claim.devices})
        _log.info("claim prepared", claim=claim.full_name, gpus=",".join(map(str, gpus)))


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Complete the work though its caller gave up: threads go on, and nothing may overtake them."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _use(claim: Claim, pod: LocalPod, node: Node) -> HeldClaim:
    held = _hold(claim, node)
    containers: dict[str, tuple[Slice, ...]] = {}
    for container, name, request in pod.uses:
        if name == claim.name:
            requests = (request,) if request else claim.requests
            more = tuple(piece for each in requests for piece in held.get(each, ()))
            containers[container] = (*containers.get(container, ()), *more)
    return HeldClaim(claim.uid, claim.slices(node), containers)


def _hold(claim: Claim, node: Node) -> Slices:
    """What each request of the claim holds."""
    return {
        request: slice_devices(
            (each for each in claim.devices if each.request == request), node.gpus
        )
        for request in claim.requests
    }


def _phases(held: Slices) -> tuple[Container, ...]:
    # Requests of a claim are held together, as by containers that run side by side.
    return tuple(map(Container, held))


def _write_share(gpu: Gpu, devices: Iterable[ClaimedDevice]) -> str:
    """A GPU's UUID, percent and MiB."""
    pieces = slice_devices(devices, (gpu,))
    cores, memory = (pieces[0].cores, pieces[0].memory) if pieces else (0, 0)
    return f"{gpu.uuid}:{cores}:{memory}"


def _answer(uid: str, device: ClaimedDevice) -> PreparedDevice:
    cdi = f"{KIND}={name_cdi_device(uid, device.request)}"
    return PreparedDevice((device.request,), device.pool, device.device, (cdi,), device.share)
