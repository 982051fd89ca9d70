"""Which GPUs containers have that others started: the runtime and the kubelet say so, nobody else.

During a take-over it is published on the Node, where the extender compares it with pods' marks
before it signs them. What neither tells is left out. Beside it stands, at any time, what pods have
that the agent itself started and whose records no longer verify, because their owners edited them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog

from slicewise.dialects import Dialects
from slicewise.dialects.shared.started_gpus import STARTED_GPUS, write_started_gpus
from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import HolderSource
from slicewise.kubelet.runtime import GivenDevices, RuntimeClient
from slicewise.model import WHOLE_GPU, DialectError, Gpu, QuantityError, Share, Standing, cut
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.grant_book import GrantBook, StartedGrant

_log = structlog.get_logger(__name__)
NVIDIA: Final = "nvidia.com/gpu"
_LOOK_SECONDS: Final = 30.0
# Pods change in groups.
_PAUSE_SECONDS: Final = 0.5
# A Node's annotations may have 256 KiB together.
_MOST_BYTES: Final = 64 << 10
_NO_GPUS: Final = frozenset({"", "none", "void"})
Uuids = tuple[str, ...]


class StartedGpuReader:
    """Looks at running containers that the agent did not start, and remembers what they have."""

    def __init__(
        self,
        pods: NodePods,
        book: GrantBook,
        dialects: Dialects,
        *,
        kubelet: HolderSource,
        runtime: RuntimeClient | None = None,
    ) -> None:
        self._pods = pods
        self._book = book
        self._dialects = dialects
        self._kubelet = kubelet
        self._runtime = runtime
        self._due = asyncio.Event()
        self._told: dict[str, GivenDevices] = {}
        """What the runtime told, by container id."""
        self._started: dict[str, dict[str, Uuids]] = {}
        self._edited: dict[str, dict[str, Uuids]] = {}

    def wake(self) -> None:
        """Look again soon: a pod or the policy has changed."""
        self._due.set()

    async def run(self, changed: Callable[[], None]) -> None:
        """Look until cancelled, and tell of every change."""
        while True:
            started, edited = self._started, self._edited
            await self.look()
            if self._started != started:
                self._pods.reread()
            if (self._started, self._edited) != (started, edited):
                changed()
            try:
                await asyncio.wait_for(self._due.wait(), _LOOK_SECONDS)
                await asyncio.sleep(_PAUSE_SECONDS)
            except TimeoutError:
                pass
            self._due.clear()

    async def look(self) -> None:
        """Read every running container that was started by others, and what edited pods have."""
        self._edited = self._find_edited()
        strangers = list(self._find_strangers())
        listed: dict[tuple[str, str, str], Uuids] = {}
        if strangers:
            listed = await self._list_plugin_gpus()
        started: dict[str, dict[str, Uuids]] = {}
        grants, told = [], {}
        for pod, container, identity, shares in strangers:
            given = self._told.get(identity) or await self._ask(identity)
            if given is not None:
                told[identity] = given
            key = (pod.pod.namespace, pod.pod.name, container)
            uuids = listed.get(key) or find_uuids(given, self._gpus())
            # A GPU may have been lost since the kubelet was asked.
            if uuids and {gpu.uuid for gpu in self._gpus()}.issuperset(uuids):
                started.setdefault(pod.pod.uid, {})[container] = uuids
                grants.append(self._value(pod, container, uuids, shares))
        self._told, self._started = told, started
        self._book.see(grants)

    def annotations(self, taking_over: bool) -> Mapping[str, str]:
        """What to publish on the Node: pods with edited records, and those being taken over."""
        taken = {pod.uid for pod in self._pods.pods() if pod.standing is Standing.TAKE_OVER}
        known = {uid: self._started[uid] for uid in self._started.keys() & taken if taking_over}
        kept: dict[str, dict[str, Uuids]] = {}
        size = 0
        for uid, given in (*sorted(self._edited.items()), *sorted(known.items())):
            size += len(write_started_gpus({uid: given}))
            if size > _MOST_BYTES:
                _log.warning("started GPUs not all published", published=len(kept), bytes=size)
                break
            kept[uid] = given
        return {STARTED_GPUS: write_started_gpus(kept)} if kept else {}

    def _find_edited(self) -> dict[str, dict[str, Uuids]]:
        """What pods have that we started, and whose records do not verify any more."""
        edited = (pod.uid for pod in self._pods.pods() if not pod.standing.believed)
        found = ((uid, self._book.pod(uid)) for uid in edited)
        return {
            uid: {name: tuple(gpu for gpu, _, _ in each.gpus) for name, each in grants.items()}
            for uid, grants in found
            if grants
        }

    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(device.gpu for device in self._pods.gpus())

    def _find_strangers(self) -> Iterator[tuple[LocalPod, str, str, tuple[Share, ...]]]:
        """Running GPU containers without a grant of ours, with their ids and what they ask for."""
        for pod in self._pods.pods():
            local = self._pods.by_uid(pod.uid)
            if local is None or not pod.asks or pod.standing is Standing.SIGNED:
                continue
            try:
                asked = self._dialects.read_request(local.pod).containers
            except (DialectError, QuantityError):
                continue
            shares = {each.name: each.shares for each in asked}
            for each in local.containers:
                ours = self._book.find(pod.uid, each.name) is not None
                if each.running and each.id and each.name in shares and not ours:
                    yield local, each.name, each.id, shares[each.name]

    async def _ask(self, identity: str) -> GivenDevices | None:
        return None if self._runtime is None else await self._runtime.given_devices(identity)

    async def _list_plugin_gpus(self) -> dict[tuple[str, str, str], Uuids]:
        """The GPUs that NVIDIA's own plugin gave: it names its units by UUID.

        Where it shares GPUs by time, a unit is the UUID, `::` and a number.
        """
        known = {gpu.uuid for gpu in self._gpus()}
        try:
            holders = await self._kubelet.list()
        except KubeletError as error:
            _log.warning("kubelet's list not read", error=str(error))
            return {}
        return {
            (each.namespace, each.pod, each.container): tuple(sorted(uuids))
            for each in holders
            if (uuids := {unit.partition("::")[0] for unit in each.units.get(NVIDIA, ())})
            and uuids <= known
        }

    def _value(
        self, pod: LocalPod, container: str, uuids: Uuids, shares: tuple[Share, ...]
    ) -> StartedGrant:
        """The grant that these GPUs amount to by the container's limits."""
        gpus = {gpu.uuid: gpu for gpu in self._gpus()}
        # Who gave more GPUs than were asked for gave the largest share of each.
        each = shares if len(shares) == len(uuids) else (max(shares, default=WHOLE_GPU),)
        pieces = [cut(each[at % len(each)], gpus[uuid]) for at, uuid in enumerate(uuids)]
        granted = tuple(
            (uuid, piece.cores, piece.memory) for uuid, piece in zip(uuids, pieces, strict=True)
        )
        name = f"{pod.pod.namespace}/{pod.pod.name}"
        return StartedGrant(pod.pod.uid, name, container, granted)


def find_uuids(given: GivenDevices | None, gpus: tuple[Gpu, ...]) -> Uuids:
    """The GPUs a container has: device nodes are certain, the variable is what is left."""
    if given is None:
        return ()
    if given.minors:
        return tuple(gpu.uuid for gpu in gpus if gpu.minor in given.minors)
    words = [word.strip() for word in (given.visible or "").split(",")]
    if "all" in words:
        return tuple(gpu.uuid for gpu in gpus)
    names = {gpu.uuid: gpu.uuid for gpu in gpus} | {str(gpu.index): gpu.uuid for gpu in gpus}
    return tuple(names[word] for word in words if word not in _NO_GPUS and word in names)
